-- Read the next jobs of partitions beside their timers and how far they are decided.
-- writes: nothing
-- index: chrono_job_epoch, chrono_timer_key, chrono_occurrence_pkey
--
-- One timer of the present version where a job is enabled, none where it is not.
SELECT j.id, j.paused OR j.deleted_at IS NOT NULL, j.schedule, j.jitter_window,
    floor(extract(epoch FROM greatest(j.activated_at, (
        SELECT coalesce(o.last_scheduled_for, o.scheduled_for)
        FROM chrono_occurrence o
        WHERE o.part = j.part AND o.job_id = j.id AND o.attempt_group = 0
        ORDER BY o.scheduled_for DESC LIMIT 1
    ))) * 1000)::bigint,
    count(t.ref)::integer,
    floor(extract(epoch FROM min(t.scheduled_for)) * 1000)::bigint,
    floor(extract(epoch FROM min(t.due_at)) * 1000)::bigint
FROM (
    SELECT j.*, r.jitter_window, (r.schedule || jsonb_build_object(
        'remaining_runs', r.policy -> 'remaining_runs'))::text AS schedule
    FROM chrono_job j
    LEFT JOIN chrono_job_revision r ON r.job_id = j.id AND r.revision = j.revision
    WHERE j.part = ANY(%(parts)s::smallint[]) AND j.id > %(after)s::uuid
        AND (%(tenant)s::integer IS NULL OR j.tenant = %(tenant)s::integer)
        AND (%(jobs)s::uuid[] IS NULL OR j.id = ANY(%(jobs)s::uuid[]))
    ORDER BY j.id LIMIT %(limit)s::integer
) j
LEFT JOIN (
    SELECT ref, version, scheduled_for, due_at FROM chrono_timer
    WHERE part = ANY(%(parts)s::smallint[]) AND kind = 1
    UNION ALL
    SELECT ref, version, scheduled_for, due_at FROM chrono_timer_far
    WHERE part = ANY(%(parts)s::smallint[]) AND kind = 1
) t ON t.ref = j.id AND t.version >= j.version
GROUP BY j.id, j.part, j.paused, j.deleted_at, j.activated_at, j.schedule, j.jitter_window
ORDER BY j.id
