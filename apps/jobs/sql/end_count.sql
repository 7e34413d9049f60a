-- Count the jobs of a tenant no more: it has no quota of them.
-- writes: job_count
-- index: chrono_job_count_pkey
DELETE FROM chrono_job_count WHERE tenant = %(tenant)s::integer
