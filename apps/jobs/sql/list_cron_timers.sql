-- List the planned timers of a partition from a key on, each with its job's cron.
-- writes: nothing
-- index: {timers} (part, due_at, ref, kind, version), chrono_job_pkey,
-- chrono_job_revision_key, chrono_occurrence_pkey
--
-- A timer of a job that has another plan by now, or none, or no cron, comes without its
-- job: a page always says where it ended.
SELECT floor(extract(epoch FROM t.due_at) * 1000)::bigint, t.ref,
    floor(extract(epoch FROM t.scheduled_for) * 1000)::bigint, j.changes,
    floor(extract(epoch FROM j.activated_at) * 1000)::bigint, j.schedule::text, (
        SELECT floor(extract(
            epoch FROM coalesce(o.last_scheduled_for, o.scheduled_for)
        ) * 1000)::bigint
        FROM chrono_occurrence o
        WHERE o.part = %(part)s::smallint AND o.job_id = j.id AND o.attempt_group = 0
            AND o.scheduled_for >= to_timestamp(%(since)s::bigint / 1000.0::float8)
        ORDER BY o.scheduled_for DESC LIMIT 1
    )
FROM (
    SELECT due_at, ref, version, scheduled_for FROM {timers}
    WHERE part = %(part)s::smallint AND kind = 1 AND (due_at, ref) > (
        to_timestamp(%(due_at)s::bigint / 1000.0::float8)::timestamptz(3),
        %(ref)s::uuid
    )
    ORDER BY due_at, ref LIMIT %(limit)s::integer
) t
LEFT JOIN LATERAL (
    SELECT j.id, j.changes, j.activated_at, r.schedule FROM chrono_job j
    JOIN chrono_job_revision r ON r.job_id = j.id AND r.revision = j.revision
    WHERE j.id = t.ref AND j.version = t.version AND NOT j.paused
        AND j.deleted_at IS NULL AND r.schedule ->> 'cron' IS NOT NULL
    LIMIT 1
) j ON true
ORDER BY t.due_at, t.ref
