-- Count the living jobs of a tenant, if they are not counted yet.
-- writes: job_count
-- index: chrono_job_living
--
-- In a statement of its own after hold_jobs: its snapshot has whatever was made without
-- being counted, and what is made later counts itself (chrono_count_jobs).
INSERT INTO chrono_job_count (tenant, jobs)
SELECT %(tenant)s::integer, count(*) FROM chrono_job
WHERE tenant = %(tenant)s::integer AND deleted_at IS NULL
ON CONFLICT (tenant) DO NOTHING
