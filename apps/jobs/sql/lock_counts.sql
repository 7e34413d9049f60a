-- Lock the numbers of these tenants' jobs, of those that are counted, in tenant order.
-- writes: nothing
-- locks: job_count rows in tenant order FOR UPDATE
-- index: chrono_job_count_pkey
--
-- Before the partitions' rows: whoever creates a job holds this one until the commit.
SELECT tenant FROM chrono_job_count
WHERE tenant = ANY(%(tenants)s::integer[])
ORDER BY tenant FOR UPDATE
