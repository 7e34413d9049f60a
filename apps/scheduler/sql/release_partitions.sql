-- Give the advisory locks of these partitions back.
-- writes: nothing
SELECT p, pg_advisory_unlock(%(class)s::integer, p)
FROM unnest(%(parts)s::integer[]) AS p
