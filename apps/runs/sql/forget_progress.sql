-- Forget what runs told that are over and done with.
-- writes: progress
-- index: chrono_progress_pkey
DELETE FROM chrono_progress WHERE run_id = ANY(%(runs)s::uuid[])
