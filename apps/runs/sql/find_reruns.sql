-- Tell which run ran a run's occurrence again, and which one it runs again itself.
-- writes: nothing
-- index: chrono_rerun_pkey, chrono_rerun_of
SELECT (
    SELECT rerun_id FROM chrono_rerun
    WHERE part = %(part)s::smallint AND run_id = %(run)s::uuid
), (
    SELECT run_id FROM chrono_rerun
    WHERE part = %(part)s::smallint AND rerun_id = %(run)s::uuid
)
