-- Read the payloads of these dead letters.
-- writes: nothing
-- index: chrono_dead_letter_pkey
SELECT run_id, payload::text FROM chrono_dead_letter
WHERE run_id = ANY(%(runs)s::uuid[])
