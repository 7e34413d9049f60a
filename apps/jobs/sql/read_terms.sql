-- Tell a tenant's terms: time zone, quotas of jobs and payload, and its counted jobs.
-- writes: nothing
-- index: chrono_tenant_pkey, chrono_job_count_pkey
--
-- With the instant and the far horizon, as read_instant, in epoch milliseconds: a create
-- reads the terms before and after it writes, and asks for the instant in the first.
SELECT t.timezone, t.max_jobs, t.max_payload_bytes, (
    SELECT c.jobs FROM chrono_job_count c WHERE c.tenant = t.id
), floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    floor(extract(epoch FROM s.horizon) * 1000)::bigint
FROM chrono_tenant t, chrono_dispatch_state s WHERE t.id = %(tenant)s::integer
