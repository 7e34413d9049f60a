-- Set runs aside whose process died again and again, to be executed alone.
-- writes: lease run attempt blocked
-- moves: running -> parked | cancelled
-- index: chrono_lease_pkey
WITH freed AS MATERIALIZED (
    DELETE FROM chrono_lease
    WHERE run_id = ANY(%(runs)s::uuid[]) AND token = ANY(%(tokens)s::uuid[])
    RETURNING *
), failed AS (
    INSERT INTO chrono_attempt (
        started_at, run_id, worker, fence, part, attempt, reason, error
    )
    SELECT started_at, run_id, worker, fence, part, attempt, %(reason)s::smallint,
        %(error)s::text
    FROM freed
    ON CONFLICT DO NOTHING
), cancelled AS (
    INSERT INTO chrono_run (
        due_at, dispatched_at, started_at, finished_at, id, job_id, worker, fence,
        revision, tenant, part, state, reason, priority, attempt, queue
    )
    SELECT due_at, dispatched_at, started_at, clock_timestamp(), run_id, job_id, worker,
        fence, revision, tenant, part, 4, coalesce(cancel_reason, 18), priority,
        attempt, queue
    FROM freed WHERE cancel
    ON CONFLICT DO NOTHING
), aside AS (
    INSERT INTO chrono_blocked (
        due_at, dispatched_at, run_id, job_id, tag, fence, revision, tenant, part,
        priority, attempt, queue, gate, reason
    )
    SELECT due_at, dispatched_at, run_id, job_id, tag, fence, revision, tenant, part,
        priority, attempt + 1, queue, 'process_crash', 22
    FROM freed WHERE NOT cancel
    ON CONFLICT DO NOTHING
)
SELECT run_id FROM freed
