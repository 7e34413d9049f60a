-- List a tenant's runs by id, newest first: history and whatever is under way.
-- writes: nothing
-- index: chrono_run_tenant, or chrono_run_not_success for states; chrono_resolution_pkey
--
-- Each table gives a page at most, and the page is taken from those. An id begins with
-- the milliseconds of its scheduled_for, so bounds in time are bounds of ids. Ready
-- and the timers have no index for this; they hold what waits, not history. What a
-- person resolved counts as that: where states or a reason are asked for, its own row is
-- passed over and it is found by its verdict.
WITH listed AS (
    (
        SELECT 1 AS rank, 'run' AS place, NULL::smallint AS kind, false AS cancel,
            state, reason, due_at, dispatched_at, started_at, finished_at, id, job_id,
            revision, part, fence, priority, attempt, queue, worker
        FROM chrono_run r
        WHERE tenant = %(tenant)s::integer AND id >= %(low)s::uuid
            AND id < %(high)s::uuid AND %(final)s::boolean
            AND (%(states)s::smallint[] IS NULL OR state = ANY(%(states)s::smallint[]))
            AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
            AND (%(job)s::uuid IS NULL OR job_id = %(job)s::uuid)
            AND (%(reason)s::smallint IS NULL OR reason = %(reason)s::smallint)
            AND (
                (%(states)s::smallint[] IS NULL AND %(reason)s::smallint IS NULL)
                OR state NOT IN (3, 6) OR (
                    SELECT true FROM chrono_resolution z
                    WHERE z.run_id = r.id AND z.part = r.part LIMIT 1
                ) IS NOT TRUE
            )
        ORDER BY id DESC LIMIT %(limit)s::integer
    ) UNION ALL (
        SELECT 2, 'run', NULL, false, state, reason, due_at, dispatched_at, started_at,
            finished_at, id, job_id, revision, part, fence, priority, attempt, queue,
            worker
        FROM chrono_run_kept r
        WHERE tenant = %(tenant)s::integer AND id >= %(low)s::uuid
            AND id < %(high)s::uuid AND %(final)s::boolean
            AND (%(states)s::smallint[] IS NULL OR state = ANY(%(states)s::smallint[]))
            AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
            AND (%(job)s::uuid IS NULL OR job_id = %(job)s::uuid)
            AND (%(reason)s::smallint IS NULL OR reason = %(reason)s::smallint)
            AND (
                (%(states)s::smallint[] IS NULL AND %(reason)s::smallint IS NULL)
                OR state NOT IN (3, 6) OR (
                    SELECT true FROM chrono_resolution z
                    WHERE z.run_id = r.id AND z.part = r.part LIMIT 1
                ) IS NOT TRUE
            )
        ORDER BY id DESC LIMIT %(limit)s::integer
    ) UNION ALL (
        SELECT 1, 'run', NULL, false, z.state, 29, r.due_at, r.dispatched_at,
            r.started_at, r.finished_at, r.id, r.job_id, r.revision, r.part, r.fence,
            r.priority, r.attempt, r.queue, r.worker
        FROM chrono_resolution z CROSS JOIN LATERAL (
            SELECT * FROM chrono_run WHERE id = z.run_id AND part = z.part
            UNION ALL
            SELECT * FROM chrono_run_kept WHERE id = z.run_id AND part = z.part
            LIMIT 1
        ) r
        WHERE z.run_id >= %(low)s::uuid AND z.run_id < %(high)s::uuid
            AND z.state = ANY(%(resolved)s::smallint[])
            AND r.tenant = %(tenant)s::integer
            AND (%(queue)s::text IS NULL OR r.queue = %(queue)s::text)
            AND (%(job)s::uuid IS NULL OR r.job_id = %(job)s::uuid)
        ORDER BY z.run_id DESC LIMIT %(limit)s::integer
    ) UNION ALL (
        SELECT 3, 'lease', NULL, cancel, NULL, NULL, due_at, dispatched_at, started_at,
            NULL, run_id, job_id, revision, part, fence, priority, attempt, queue,
            worker
        FROM chrono_lease
        WHERE tenant = %(tenant)s::integer AND run_id >= %(low)s::uuid
            AND run_id < %(high)s::uuid AND %(running)s::boolean
            AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
            AND (%(job)s::uuid IS NULL OR job_id = %(job)s::uuid)
        ORDER BY run_id DESC LIMIT %(limit)s::integer
    ) UNION ALL (
        SELECT 4, 'parked', NULL, false, NULL, reason, due_at, dispatched_at, NULL,
            NULL, run_id, job_id, revision, part, fence, priority, attempt, queue, NULL
        FROM chrono_parked
        WHERE tenant = %(tenant)s::integer AND run_id >= %(low)s::uuid
            AND run_id < %(high)s::uuid AND %(parked)s::boolean
            AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
            AND (%(job)s::uuid IS NULL OR job_id = %(job)s::uuid)
            AND (%(reason)s::smallint IS NULL OR reason = %(reason)s::smallint)
        ORDER BY run_id DESC LIMIT %(limit)s::integer
    ) UNION ALL (
        SELECT 5, 'blocked', NULL, false, NULL, reason, due_at, dispatched_at, NULL,
            NULL, run_id, job_id, revision, part, fence, priority, attempt, queue, NULL
        FROM chrono_blocked
        WHERE tenant = %(tenant)s::integer AND run_id >= %(low)s::uuid
            AND run_id < %(high)s::uuid AND %(parked)s::boolean
            AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
            AND (%(job)s::uuid IS NULL OR job_id = %(job)s::uuid)
            AND (%(reason)s::smallint IS NULL OR reason = %(reason)s::smallint)
        ORDER BY run_id DESC LIMIT %(limit)s::integer
    ) UNION ALL (
        SELECT 6, 'timer', t.kind, false, NULL, NULL, t.due_at, NULL, NULL, NULL, t.ref,
            t.job_id, t.revision, t.part, NULL, NULL, t.attempt, NULL, NULL
        FROM (
            SELECT * FROM chrono_timer WHERE kind = ANY(%(kinds)s::smallint[])
                AND kind <> 1
            UNION ALL
            SELECT * FROM chrono_timer_far WHERE kind = ANY(%(kinds)s::smallint[])
                AND kind <> 1
        ) AS t
        JOIN chrono_job w ON w.id = t.job_id AND w.tenant = %(tenant)s::integer
        JOIN chrono_job_revision q ON q.job_id = t.job_id AND q.revision = t.revision
        WHERE t.ref >= %(low)s::uuid AND t.ref < %(high)s::uuid
            AND (%(queue)s::text IS NULL OR q.queue = %(queue)s::text)
            AND (%(job)s::uuid IS NULL OR t.job_id = %(job)s::uuid)
        ORDER BY t.ref DESC LIMIT %(limit)s::integer
    ) UNION ALL (
        SELECT 7, 'ready', NULL, false, NULL, NULL, due_at, dispatched_at, NULL, NULL,
            run_id, job_id, revision, part, fence, priority, attempt, queue, NULL
        FROM chrono_ready y
        WHERE tenant = %(tenant)s::integer AND run_id >= %(low)s::uuid
            AND run_id < %(high)s::uuid AND %(ready)s::boolean
            AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
            AND (%(job)s::uuid IS NULL OR job_id = %(job)s::uuid)
            AND NOT EXISTS (
                SELECT FROM chrono_withdrawn w
                WHERE w.run_id = y.run_id AND w.part = y.part
            )
        ORDER BY run_id DESC LIMIT %(limit)s::integer
    )
), page AS (
    SELECT DISTINCT ON (id) * FROM listed ORDER BY id DESC, rank
    LIMIT %(limit)s::integer
)
SELECT p.place, p.kind, p.cancel, coalesce(z.state, p.state),
    CASE WHEN z.state IS NULL THEN p.reason ELSE 29 END, p.due_at, p.dispatched_at,
    p.started_at, p.finished_at, p.id, p.job_id, p.revision, p.part, p.fence,
    coalesce(p.priority, i.priority, v.priority), p.attempt,
    coalesce(p.queue, v.queue), p.worker, j.key
FROM page p
JOIN chrono_job j ON j.id = p.job_id
LEFT JOIN chrono_job_revision v ON v.job_id = p.job_id AND v.revision = p.revision
LEFT JOIN chrono_run_input i
    ON i.part = p.part AND i.run_id = p.id AND p.place = 'timer'
LEFT JOIN chrono_resolution z
    ON z.run_id = p.id AND z.part = p.part AND p.state IN (3, 6)
ORDER BY p.id DESC
