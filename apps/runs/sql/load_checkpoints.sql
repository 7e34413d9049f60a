-- Read from where earlier attempts of these runs say to go on.
-- writes: nothing
-- index: chrono_progress_pkey
SELECT run_id, checkpoint::text FROM chrono_progress
WHERE run_id = ANY(%(runs)s::uuid[]) AND checkpoint IS NOT NULL
