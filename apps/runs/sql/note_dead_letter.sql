-- Write a note on a dead letter, in place of the one it has.
-- writes: dead_letter
-- index: chrono_dead_letter_pkey
UPDATE chrono_dead_letter
SET note = %(note)s::text, noted_at = clock_timestamp(), noted_by = %(by)s::text
WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
RETURNING run_id
