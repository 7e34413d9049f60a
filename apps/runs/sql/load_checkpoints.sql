-- Read where runs that told something say that the next attempt goes on.
-- writes: nothing
-- index: chrono_progress_pkey
SELECT run_id, checkpoint::text FROM chrono_progress
WHERE run_id = ANY(%(runs)s::uuid[])
