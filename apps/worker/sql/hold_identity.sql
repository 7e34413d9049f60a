-- Hold a worker's identity for as long as this session lives.
-- writes: nothing
-- locks: advisory, shared, keyed by the last 64 bits of the worker's id
--
-- Shared among the sessions of the worker: while one is left, its process lives. The
-- first two bits of the key are those of the UUID variant, so it is always negative and
-- never one of the small numbers that partitions are locked by.
SELECT pg_advisory_lock_shared(
    ('x' || right(replace(%(worker)s::uuid::text, '-', ''), 16))::bit(64)::bigint
)
