-- Tell a tenant's terms: time zone, quotas of jobs and payload, and its counted jobs.
-- writes: nothing
-- index: chrono_tenant_pkey, chrono_job_count_pkey
SELECT t.timezone, t.max_jobs, t.max_payload_bytes, (
    SELECT c.jobs FROM chrono_job_count c WHERE c.tenant = t.id
)
FROM chrono_tenant t WHERE t.id = %(tenant)s::integer
