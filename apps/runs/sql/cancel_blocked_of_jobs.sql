-- Cancel every run of deleted jobs that waits behind a gate.
-- writes: blocked run
-- moves: parked -> cancelled
-- index: chrono_blocked_order (gate, part, job_id, due_at), chrono_blocked_job
WITH taken AS MATERIALIZED (
    SELECT ctid AS tid FROM chrono_blocked
    WHERE gate IN ('overlap', 'catch_up', 'paused')
        AND part = ANY(%(parts)s::smallint[]) AND job_id = ANY(%(jobs)s::uuid[])
    FOR UPDATE SKIP LOCKED
), others AS MATERIALIZED (
    SELECT ctid AS tid FROM chrono_blocked
    WHERE strpos(gate, '/') > 0
        AND part = ANY(%(parts)s::smallint[]) AND job_id = ANY(%(jobs)s::uuid[])
    FOR UPDATE SKIP LOCKED
), moved AS (
    DELETE FROM chrono_blocked WHERE ctid = ANY(ARRAY(
        SELECT tid FROM taken UNION ALL SELECT tid FROM others
    ))
    RETURNING *
)
INSERT INTO chrono_run (
    due_at, dispatched_at, finished_at, id, job_id, fence, revision, tenant, part,
    state, reason, priority, attempt, queue
)
SELECT due_at, dispatched_at, clock_timestamp(), run_id, job_id, fence, revision,
    tenant, part, 4, %(reason)s::smallint, priority, attempt, queue
FROM moved
ON CONFLICT DO NOTHING
RETURNING id
