-- Count this session among the schedulers until it ends.
-- writes: nothing
SELECT pg_advisory_lock_shared(%(class)s::integer, %(member)s::integer)
