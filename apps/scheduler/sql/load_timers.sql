-- Read the timers of these partitions due in a stretch of time, with their epochs.
-- writes: nothing
-- index: chrono_timer (part, due_at, ref, kind, version)
--
-- Each partition goes on behind a place of its own, in the order of the key, and reads
-- a number of rows at most. The epoch comes from the same snapshot as the rows.
-- Instants are whole milliseconds by a check; as numbers they cost least to read.
SELECT p.id, p.epoch, t.bucket,
    (date_part('epoch', t.due_at) * 1000)::bigint, t.ref, t.kind, t.version, t.job_id,
    t.revision, (date_part('epoch', t.scheduled_for) * 1000)::bigint,
    t.attempt_group, t.attempt, t.prev, t.remaining,
    j.version, j.revision, j.tenant, j.paused, j.deleted_at IS NOT NULL
FROM unnest(
    %(parts)s::smallint[], %(due)s::bigint[], %(ref)s::uuid[], %(kind)s::smallint[],
    %(version)s::integer[]
) AS g (part, due, ref, kind, version)
JOIN chrono_partition p ON p.id = g.part
CROSS JOIN LATERAL (
    (SELECT tableoid AS bucket, due_at, ref, kind, version, job_id, revision,
        scheduled_for, attempt_group, attempt, prev, remaining
    FROM chrono_timer
    WHERE part = g.part AND due_at >= to_timestamp(g.due / 1000.0::float8)
        AND (due_at, ref, kind, version) > (
            to_timestamp(g.due / 1000.0::float8), g.ref, g.kind, g.version
        )
        AND due_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
    ORDER BY due_at, ref, kind, version LIMIT %(each)s::integer)
    UNION ALL
    (SELECT tableoid, due_at, ref, kind, version, job_id, revision,
        scheduled_for, attempt_group, attempt, prev, remaining
    FROM chrono_timer_far
    WHERE part = g.part AND due_at >= to_timestamp(g.due / 1000.0::float8)
        AND (due_at, ref, kind, version) > (
            to_timestamp(g.due / 1000.0::float8), g.ref, g.kind, g.version
        )
        AND due_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
    ORDER BY due_at, ref, kind, version LIMIT %(each)s::integer)
    ORDER BY due_at, ref, kind, version LIMIT %(each)s::integer
) t
JOIN chrono_job j ON j.id = t.job_id
