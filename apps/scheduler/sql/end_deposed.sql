-- End the firing sessions of others that hold the rows of these partitions.
-- writes: nothing
-- index: chrono_partition_pkey
--
-- Only for who has the partitions' advisory locks: then these leaders are deposed.
SELECT pg_terminate_backend(a.pid)
FROM chrono_partition p JOIN pg_stat_activity a ON a.backend_xid = p.xmax
WHERE p.id = ANY(%(parts)s::smallint[]) AND a.application_name = %(name)s::text
    AND a.pid <> %(own)s::integer
