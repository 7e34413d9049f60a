-- Read what a run that is over logged last, where no failed attempt has it.
-- writes: nothing
-- index: chrono_run_pkey, chrono_run_kept_pkey
SELECT log FROM chrono_run
WHERE id = %(run)s::uuid AND part = %(part)s::smallint AND log IS NOT NULL
UNION ALL
SELECT log FROM chrono_run_kept
WHERE id = %(run)s::uuid AND part = %(part)s::smallint AND log IS NOT NULL
