-- Read one run of a tenant, or of any, wherever it is, in one snapshot.
-- writes: nothing
-- index: the primary keys; only a run found nowhere else is looked for in ready, which
-- has no index by run, so that nobody pays for one.
--
-- The id is written where a join would do: then only its day is planned for.
WITH held AS MATERIALIZED (
    SELECT 1 AS rank, 'run' AS place, NULL::smallint AS kind, false AS cancel, state,
        reason, due_at, dispatched_at, started_at, finished_at, id, job_id, revision,
        part, fence, priority, attempt, queue, worker, result::text
    FROM chrono_run WHERE id = %(run)s::uuid AND part = %(part)s::smallint
    UNION ALL
    SELECT 2, 'run', NULL, false, state, reason, due_at, dispatched_at, started_at,
        finished_at, id, job_id, revision, part, fence, priority, attempt, queue,
        worker, result::text
    FROM chrono_run_kept WHERE id = %(run)s::uuid AND part = %(part)s::smallint
    UNION ALL
    SELECT 3, 'lease', NULL, cancel, NULL, NULL, due_at, dispatched_at, started_at,
        NULL, run_id, job_id, revision, part, fence, priority, attempt, queue, worker,
        NULL
    FROM chrono_lease WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
    UNION ALL
    SELECT 4, 'parked', NULL, false, NULL, reason, due_at, dispatched_at, NULL, NULL,
        run_id, job_id, revision, part, fence, priority, attempt, queue, NULL, NULL
    FROM chrono_parked WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
    UNION ALL
    SELECT 5, 'blocked', NULL, false, NULL, reason, due_at, dispatched_at, NULL, NULL,
        run_id, job_id, revision, part, fence, priority, attempt, queue, NULL, NULL
    FROM chrono_blocked WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
    UNION ALL
    SELECT 6, 'timer', kind, false, NULL, NULL, due_at, NULL, NULL, NULL, ref, job_id,
        revision, part, NULL, NULL, attempt, NULL, NULL, NULL
    FROM chrono_timer
    WHERE part = %(part)s::smallint AND ref = %(run)s::uuid AND kind <> 1
    UNION ALL
    SELECT 7, 'timer', kind, false, NULL, NULL, due_at, NULL, NULL, NULL, ref, job_id,
        revision, part, NULL, NULL, attempt, NULL, NULL, NULL
    FROM chrono_timer_far
    WHERE part = %(part)s::smallint AND ref = %(run)s::uuid AND kind <> 1
), found AS (
    SELECT * FROM held
    UNION ALL
    SELECT 8, 'ready', NULL, false, NULL, NULL, due_at, dispatched_at, NULL, NULL,
        run_id, job_id, revision, part, fence, priority, attempt, queue, NULL, NULL
    FROM chrono_ready
    WHERE NOT (SELECT EXISTS (SELECT FROM held)) AND run_id = %(run)s::uuid
    ORDER BY rank LIMIT 1
)
SELECT f.place, f.kind, f.cancel, coalesce(z.state, f.state),
    CASE WHEN z.state IS NULL THEN f.reason ELSE 29 END,
    f.due_at, f.dispatched_at, f.started_at, f.finished_at, f.id, f.job_id, f.revision,
    f.part, f.fence, coalesce(f.priority, i.priority, v.priority), f.attempt,
    coalesce(f.queue, v.queue), f.worker, j.key, v.retry_policy::text,
    coalesce(i.payload, v.payload)::text, f.result, p.checkpoint::text,
    o.kind, o.attempt_group, w.beat_at, a.reason, a.error, a.finished_at, p.share,
    p.text, p.noted_at, p.attempt
FROM found f
JOIN chrono_job j ON j.id = f.job_id
    AND (%(tenant)s::integer IS NULL OR j.tenant = %(tenant)s::integer)
LEFT JOIN chrono_job_revision v ON v.job_id = f.job_id AND v.revision = f.revision
LEFT JOIN chrono_run_input i
    ON i.part = %(part)s::smallint AND i.run_id = %(run)s::uuid
LEFT JOIN chrono_resolution z
    ON z.run_id = %(run)s::uuid AND z.part = %(part)s::smallint
LEFT JOIN chrono_worker w ON w.id = f.worker
LEFT JOIN chrono_progress p
    ON p.run_id = %(run)s::uuid AND p.part = %(part)s::smallint
LEFT JOIN chrono_occurrence o ON o.part = %(part)s::smallint AND o.job_id = f.job_id
    AND o.scheduled_for = to_timestamp(%(scheduled_for)s::bigint / 1000.0::float8)
    AND o.run_id = %(run)s::uuid
LEFT JOIN LATERAL (
    SELECT reason, error, finished_at FROM (
        SELECT attempt, reason, error, finished_at FROM chrono_attempt
        WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
        UNION ALL
        SELECT attempt, reason, error, finished_at FROM chrono_attempt_kept
        WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
    ) AS failed
    ORDER BY attempt DESC LIMIT 1
) a ON true
