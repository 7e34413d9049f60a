-- List a job's revisions without their payloads, newest first.
-- writes: nothing
-- index: chrono_job_revision_key
SELECT revision, floor(extract(epoch FROM created_at) * 1000)::bigint, schedule::text,
    jitter_window, overlap_policy, queue, priority, target::text, retry_policy::text,
    policy::text, octet_length(payload::text)
FROM chrono_job_revision
WHERE job_id = %(job)s::uuid AND revision < %(before)s::integer
ORDER BY revision DESC LIMIT %(limit)s::integer
