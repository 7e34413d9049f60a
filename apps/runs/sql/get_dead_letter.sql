-- Read what a dead letter has besides its row: payload and every error.
-- writes: nothing
-- index: chrono_dead_letter_pkey
SELECT payload::text, errors::text FROM chrono_dead_letter
WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
