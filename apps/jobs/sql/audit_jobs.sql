-- Read the next jobs by id, each with its plan in force and how far it was decided.
-- writes: nothing
-- index: chrono_job_pkey, chrono_job_revision_key, chrono_occurrence_pkey
--
-- What lies up to `since` may be decided by a row before it that stands for a stretch.
SELECT j.id, j.tenant, j.part, j.version, j.revision,
    j.paused OR j.deleted_at IS NOT NULL,
    floor(extract(epoch FROM j.activated_at) * 1000)::bigint,
    (r.schedule || jsonb_build_object(
        'remaining_runs', r.policy -> 'remaining_runs'))::text,
    floor(extract(epoch FROM l.until) * 1000)::bigint
FROM (
    SELECT * FROM chrono_job
    WHERE id > %(after)s::uuid
        AND (%(tenant)s::integer IS NULL OR tenant = %(tenant)s::integer)
        AND (%(jobs)s::uuid[] IS NULL OR id = ANY(%(jobs)s::uuid[]))
    ORDER BY id LIMIT %(limit)s::integer
) j
LEFT JOIN chrono_job_revision r ON r.job_id = j.id AND r.revision = j.revision
LEFT JOIN LATERAL (
    SELECT o.last_scheduled_for AS until FROM chrono_occurrence o
    WHERE o.part = j.part AND o.job_id = j.id AND o.attempt_group = 0
        AND o.scheduled_for <= to_timestamp(%(since)s::bigint / 1000.0::float8)
    ORDER BY o.scheduled_for DESC LIMIT 1
) l ON true
ORDER BY j.id
