-- List the partitions that some scheduler leads right now.
-- writes: nothing
--
-- By the advisory locks: a partition's row keeps the name of whoever had it last.
SELECT DISTINCT objid::bigint::smallint FROM pg_locks
WHERE locktype = 'advisory' AND classid = %(partitions)s::bigint AND objsubid = 2
    AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
