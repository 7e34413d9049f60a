-- Take a worker's identity lock for this session, if nobody has it.
-- writes: nothing
-- locks: advisory, keyed by the last 64 bits of the worker's id
--
-- Their first two bits are those of the UUID variant, so the key is always negative and
-- never one of the small numbers that partitions are locked by.
SELECT pg_try_advisory_lock(
    ('x' || right(replace(%(worker)s::uuid::text, '-', ''), 16))::bit(64)::bigint
)
