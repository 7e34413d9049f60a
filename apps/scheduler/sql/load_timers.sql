-- Read the timers of these partitions due before an instant, with their epochs.
-- writes: nothing
-- index: chrono_timer (part, due_at, ref, kind, version)
--
-- No lower bound: a timer that commits late is never behind the window. The epoch
-- comes from the same snapshot as the rows.
SELECT p.id, p.epoch, t.bucket, t.due_at, t.ref, t.kind, t.version, t.job_id,
    t.revision, t.scheduled_for, t.attempt_group, t.attempt, t.prev, t.remaining,
    j.version, j.revision, j.tenant, j.paused, j.deleted_at IS NOT NULL
FROM chrono_partition p
CROSS JOIN LATERAL (
    SELECT tableoid AS bucket, due_at, ref, kind, version, job_id, revision,
        scheduled_for, attempt_group, attempt, prev, remaining
    FROM chrono_timer
    WHERE part = p.id AND due_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
    UNION ALL
    SELECT tableoid, due_at, ref, kind, version, job_id, revision,
        scheduled_for, attempt_group, attempt, prev, remaining
    FROM chrono_timer_far
    WHERE part = p.id AND due_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
) t
JOIN chrono_job j ON j.id = t.job_id
WHERE p.id = ANY(%(parts)s::smallint[])
LIMIT %(limit)s::integer
