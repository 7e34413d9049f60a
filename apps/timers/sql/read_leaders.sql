-- Count the schedulers and the partitions that one of them holds right now.
-- writes: nothing
--
-- By the advisory locks, which end with their session; a partition's row keeps the
-- name of whoever had it last.
SELECT count(*) FILTER (WHERE classid = %(members)s::bigint),
    count(DISTINCT objid) FILTER (WHERE classid = %(partitions)s::bigint)
FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 2 AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
