-- Let the next scheduler prepare the tables.
-- writes: nothing
SELECT pg_advisory_unlock(%(class)s::integer, 0)
