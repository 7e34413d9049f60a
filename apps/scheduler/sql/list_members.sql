-- Count the schedulers and list the partitions that any of them holds.
-- writes: nothing
SELECT
    count(*) FILTER (WHERE classid = %(members)s::bigint),
    array_agg(objid::bigint::integer) FILTER (WHERE classid = %(partitions)s::bigint)
FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 2 AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
