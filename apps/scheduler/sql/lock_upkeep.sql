-- Wait until no other scheduler prepares the tables.
-- writes: nothing
SELECT pg_advisory_lock(%(class)s::integer, 0)
