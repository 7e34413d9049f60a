-- Read the schedules of revisions of jobs.
-- writes: nothing
-- index: chrono_job_revision_key
SELECT r.job_id, r.revision, r.schedule::text
FROM unnest(%(jobs)s::uuid[], %(revisions)s::integer[]) AS a (job, revision)
JOIN chrono_job_revision r ON r.job_id = a.job AND r.revision = a.revision
