-- Read why these runs died: the reason, and the error of the last attempt.
-- writes: nothing
-- index: chrono_dead_letter_pkey
SELECT run_id, reason, errors -> -1 ->> 'error' FROM chrono_dead_letter
WHERE run_id = ANY(%(runs)s::uuid[])
