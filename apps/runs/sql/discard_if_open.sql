-- Close dead letters that nothing is to be done about, with a note why.
-- writes: dead_letter
-- index: chrono_dead_letter_pkey
UPDATE chrono_dead_letter
SET closed = 2, closed_at = clock_timestamp(), closed_by = %(by)s::text,
    note = %(note)s::text, noted_at = clock_timestamp(), noted_by = %(by)s::text
WHERE run_id = ANY(%(runs)s::uuid[]) AND closed IS NULL
    AND (%(tenant)s::integer IS NULL OR tenant = %(tenant)s::integer)
RETURNING run_id
