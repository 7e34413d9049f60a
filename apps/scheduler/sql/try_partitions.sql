-- Take the advisory locks of these partitions, as far as they are free.
-- writes: nothing
SELECT p, pg_try_advisory_lock(%(class)s::integer, p)
FROM unnest(%(parts)s::integer[]) AS p
