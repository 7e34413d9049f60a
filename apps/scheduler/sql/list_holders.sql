-- Name the sessions that hold the rows of these partitions.
-- writes: nothing
-- index: chrono_partition_pkey
--
-- A row names the transaction that locked it last. Sessions that share a row hide
-- behind a number of their own: those are not found.
SELECT p.id, l.pid, coalesce(a.application_name, ''),
    floor(extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::bigint
FROM chrono_partition p
JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = p.xmax
    AND l.granted AND l.mode = 'ExclusiveLock'
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE p.id = ANY(%(parts)s::smallint[])
ORDER BY p.id
