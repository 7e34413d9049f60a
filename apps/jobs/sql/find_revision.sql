-- Read the schedule of a job's revision in force at an instant.
-- writes: nothing
-- index: chrono_job_revision_key
SELECT revision, schedule::text FROM chrono_job_revision
WHERE job_id = %(job)s::uuid
    AND created_at <= to_timestamp(%(at)s::bigint / 1000.0::float8)
ORDER BY revision DESC LIMIT 1
