-- Read what a worker must know of these revisions of jobs.
-- writes: nothing
-- index: chrono_job_revision_key
SELECT r.job_id, r.revision, r.target::text, r.payload::text, r.retry_policy::text,
    r.policy ->> 'delivery' IS NOT DISTINCT FROM 'at_most_once'
FROM unnest(%(jobs)s::uuid[], %(revisions)s::integer[]) AS w (job_id, revision)
JOIN chrono_job_revision r ON r.job_id = w.job_id AND r.revision = w.revision
