-- Count the schedulers and list the partitions that any holds; tell who is in the way.
-- writes: nothing
-- index: chrono_partition_pkey
--
-- That is: whether the firing session waits for a lock, and whether somebody holds the
-- row of one of these partitions. See list_waits and list_holders, which name them.
SELECT
    count(*) FILTER (WHERE classid = %(members)s::bigint),
    array_agg(objid::bigint::integer) FILTER (WHERE classid = %(partitions)s::bigint),
    EXISTS (
        SELECT FROM pg_stat_activity
        WHERE pid = %(firing)s::integer AND wait_event_type = 'Lock'
    ),
    EXISTS (
        SELECT FROM chrono_partition p
        JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = p.xmax
            AND l.granted AND l.mode = 'ExclusiveLock'
        WHERE p.id = ANY(%(parts)s::smallint[])
    )
FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 2 AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
