-- List a job's occurrences, newest first: each with its run, or skipped.
-- writes: nothing
-- index: chrono_occurrence_pkey backwards, then chrono_run_pkey for each row
--
-- History has no index by job: the ledger is it. What waits for its time and has no
-- ledger row yet comes from the timers.
WITH decided AS MATERIALIZED (
    (
        SELECT scheduled_for, attempt_group, run_id, outcome, reason, decided_at, fence,
            revision, NULL::smallint AS kind, NULL::timestamptz AS due_at, 1 AS attempt
        FROM chrono_occurrence
        WHERE part = %(part)s::smallint AND job_id = %(job)s::uuid
            AND run_id IS NOT NULL
            AND scheduled_for >= to_timestamp(%(from)s::bigint / 1000.0::float8)
            AND (scheduled_for, attempt_group) < (
                to_timestamp(%(until)s::bigint / 1000.0::float8), %(group)s::integer
            )
        ORDER BY job_id DESC, scheduled_for DESC, attempt_group DESC
        LIMIT %(limit)s::integer
    ) UNION ALL (
        SELECT scheduled_for, attempt_group, ref, 0, NULL, NULL, NULL, revision, kind,
            due_at, attempt
        FROM (
            SELECT * FROM chrono_timer WHERE part = %(part)s::smallint AND kind <> 1
            UNION ALL
            SELECT * FROM chrono_timer_far WHERE part = %(part)s::smallint AND kind <> 1
        ) AS t
        WHERE job_id = %(job)s::uuid AND kind <> 4
            AND scheduled_for >= to_timestamp(%(from)s::bigint / 1000.0::float8)
            AND (scheduled_for, attempt_group) < (
                to_timestamp(%(until)s::bigint / 1000.0::float8), %(group)s::integer
            )
        ORDER BY scheduled_for DESC, attempt_group DESC LIMIT %(limit)s::integer
    )
), page AS MATERIALIZED (
    SELECT * FROM decided ORDER BY scheduled_for DESC, attempt_group DESC
    LIMIT %(limit)s::integer
), placed AS (
    SELECT 1 AS rank, 'run' AS place, NULL::smallint AS kind, false AS cancel, r.*
    FROM page d CROSS JOIN LATERAL (
        SELECT state, reason, due_at, dispatched_at, started_at, finished_at, id,
            revision, fence, priority, attempt, queue, worker
        FROM chrono_run WHERE id = d.run_id AND part = %(part)s::smallint OFFSET 0
    ) r WHERE d.outcome = 1 OR d.reason = 18
    UNION ALL
    SELECT 2, 'run', NULL, false, r.*
    FROM page d CROSS JOIN LATERAL (
        SELECT state, reason, due_at, dispatched_at, started_at, finished_at, id,
            revision, fence, priority, attempt, queue, worker
        FROM chrono_run_kept WHERE id = d.run_id AND part = %(part)s::smallint OFFSET 0
    ) r WHERE d.outcome = 1 OR d.reason = 18
    UNION ALL
    SELECT 3, 'lease', NULL, l.cancel, NULL, NULL, l.due_at, l.dispatched_at,
        l.started_at, NULL, l.run_id, l.revision, l.fence, l.priority, l.attempt,
        l.queue, l.worker
    FROM page d CROSS JOIN LATERAL (
        SELECT * FROM chrono_lease
        WHERE run_id = d.run_id AND part = %(part)s::smallint OFFSET 0
    ) l WHERE d.outcome = 1
    UNION ALL
    SELECT 4, 'parked', NULL, false, NULL, k.reason, k.due_at, k.dispatched_at, NULL,
        NULL, k.run_id, k.revision, k.fence, k.priority, k.attempt, k.queue, NULL
    FROM chrono_parked k JOIN page d ON d.run_id = k.run_id
    WHERE k.part = %(part)s::smallint
    UNION ALL
    SELECT 5, 'blocked', NULL, false, NULL, k.reason, k.due_at, k.dispatched_at, NULL,
        NULL, k.run_id, k.revision, k.fence, k.priority, k.attempt, k.queue, NULL
    FROM chrono_blocked k JOIN page d ON d.run_id = k.run_id
    WHERE k.part = %(part)s::smallint
    UNION ALL
    SELECT 6, 'timer', t.kind, false, NULL, NULL, t.due_at, NULL, NULL, NULL, t.ref,
        t.revision, NULL, NULL, t.attempt, NULL, NULL
    FROM (
        SELECT * FROM chrono_timer WHERE part = %(part)s::smallint AND kind <> 1
        UNION ALL
        SELECT * FROM chrono_timer_far WHERE part = %(part)s::smallint AND kind <> 1
    ) AS t JOIN page d ON d.run_id = t.ref
    UNION ALL
    SELECT 7, 'ready', NULL, false, NULL, NULL, y.due_at, y.dispatched_at, NULL, NULL,
        y.run_id, y.revision, y.fence, y.priority, y.attempt, y.queue, NULL
    FROM chrono_ready y JOIN page d ON d.run_id = y.run_id
    WHERE y.part = %(part)s::smallint AND y.job_id = %(job)s::uuid
    UNION ALL
    SELECT 8, 'skip', NULL, false, 5, d.reason, NULL, NULL, NULL, d.decided_at,
        d.run_id, d.revision, d.fence, NULL, NULL, NULL, NULL
    FROM page d WHERE d.outcome = 2
), shown AS (
    SELECT DISTINCT ON (id) * FROM placed ORDER BY id, rank
)
SELECT s.place, s.kind, s.cancel, coalesce(z.state, s.state),
    CASE WHEN z.state IS NULL THEN s.reason ELSE 29 END, s.due_at, s.dispatched_at,
    s.started_at, s.finished_at, d.run_id, j.id, d.revision, j.part, s.fence,
    coalesce(s.priority, v.priority), s.attempt, coalesce(s.queue, v.queue), s.worker,
    j.key, d.scheduled_for, d.attempt_group
FROM page d
JOIN chrono_job j ON j.id = %(job)s::uuid AND j.tenant = %(tenant)s::integer
LEFT JOIN shown s ON s.id = d.run_id
LEFT JOIN chrono_job_revision v ON v.job_id = j.id AND v.revision = d.revision
LEFT JOIN chrono_resolution z
    ON z.run_id = d.run_id AND z.part = %(part)s::smallint AND s.state IN (3, 6)
ORDER BY d.scheduled_for DESC, d.attempt_group DESC
