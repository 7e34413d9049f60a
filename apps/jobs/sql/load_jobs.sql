-- Read jobs, deleted ones too, each with its revision in force.
-- writes: nothing
-- index: chrono_job_pkey, chrono_job_revision_key
SELECT j.id, j.tenant, j.part, j.key, j.name, j.tags, j.version, j.revision,
    j.changes, j.paused, j.pause_note,
    floor(extract(epoch FROM j.paused_until) * 1000)::bigint, j.paused_by,
    floor(extract(epoch FROM j.activated_at) * 1000)::bigint,
    floor(extract(epoch FROM j.created_at) * 1000)::bigint,
    floor(extract(epoch FROM j.updated_at) * 1000)::bigint,
    floor(extract(epoch FROM j.deleted_at) * 1000)::bigint, j.remaining_runs,
    r.schedule::text,
    r.jitter_window, r.overlap_policy, r.queue, r.priority, r.target::text,
    r.payload::text, r.retry_policy::text, r.policy::text
FROM chrono_job j
JOIN chrono_job_revision r ON r.job_id = j.id AND r.revision = j.revision
WHERE j.id = ANY(%(jobs)s::uuid[])
    AND (%(tenant)s::integer IS NULL OR j.tenant = %(tenant)s::integer)
ORDER BY j.id
