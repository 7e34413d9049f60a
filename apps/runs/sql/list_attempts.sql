-- List the failed attempts of a run, first to last.
-- writes: nothing
-- index: chrono_attempt_pkey
SELECT DISTINCT ON (attempt) attempt, started_at, finished_at, reason, error, worker,
    fence, log
FROM (
    SELECT * FROM chrono_attempt
    WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
    UNION ALL
    SELECT * FROM chrono_attempt_kept
    WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
) AS failed
ORDER BY attempt
