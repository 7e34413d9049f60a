-- Find the ids of the jobs with these keys that are not deleted.
-- writes: nothing
-- index: chrono_job_key
SELECT key, id FROM chrono_job
WHERE tenant = %(tenant)s::integer AND key = ANY(%(keys)s::text[])
    AND deleted_at IS NULL
