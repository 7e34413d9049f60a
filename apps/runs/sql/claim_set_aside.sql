-- Claim a run of a queue that was set aside, the first due first.
-- writes: blocked lease
-- moves: parked -> running
-- index: chrono_blocked_gate
WITH chosen AS MATERIALIZED (
    SELECT ctid AS tid FROM chrono_blocked
    WHERE gate = 'process_crash' AND reason NOT IN (1, 2, 31)
        AND queue = %(queue)s::text
    ORDER BY due_at LIMIT %(limit)s::integer
    FOR UPDATE SKIP LOCKED
), moved AS (
    DELETE FROM chrono_blocked WHERE ctid = ANY(ARRAY(SELECT tid FROM chosen))
    RETURNING *
)
INSERT INTO chrono_lease (
    due_at, dispatched_at, run_id, job_id, tag, fence, revision, tenant, part, priority,
    attempt, queue, token, worker
)
SELECT due_at, dispatched_at, run_id, job_id, tag, fence, revision, tenant, part,
    priority, attempt, queue, gen_random_uuid(), %(worker)s::uuid
FROM moved
RETURNING run_id, part, job_id, revision, tenant, attempt, fence, token, (
    SELECT j.deleted_at IS NOT NULL FROM chrono_job j WHERE j.id = job_id
), (SELECT gates FROM chrono_dispatch_state WHERE id = 1)
