-- List the payloads of some of a job's revisions.
-- writes: nothing
-- index: chrono_job_revision_key
SELECT revision, payload::text FROM chrono_job_revision
WHERE job_id = %(job)s::uuid AND revision = ANY(%(revisions)s::integer[])
    AND payload IS NOT NULL
