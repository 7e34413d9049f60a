-- Have a run that waits behind a gate be let in no earlier than another instant.
-- writes: blocked
-- moves: nothing
-- index: chrono_blocked_pkey
UPDATE chrono_blocked
SET due_at = to_timestamp(%(due)s::bigint / 1000.0::float8)::timestamptz(3)
WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
RETURNING run_id
