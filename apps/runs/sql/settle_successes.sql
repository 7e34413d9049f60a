-- Settle executions that succeeded and left nothing to keep, whose lease still holds.
-- writes: lease run
-- moves: running -> success
-- index: chrono_lease_pkey
--
-- What nearly all are. A run that is in chrono_run already, cancelled over an open claim,
-- fails the whole batch, which settle_if_leased then takes: to look for each of them, and
-- to confirm each row, would cost every run a sixth of its settle and 48 bytes of WAL.
WITH freed AS MATERIALIZED (
    DELETE FROM chrono_lease
    WHERE run_id = ANY(%(runs)s::uuid[]) AND token = ANY(%(tokens)s::uuid[])
    RETURNING *
), succeeded AS (
    INSERT INTO chrono_run (
        due_at, dispatched_at, started_at, finished_at, id, job_id, worker, fence,
        revision, tenant, part, state, priority, attempt, queue
    )
    SELECT due_at, dispatched_at, started_at, clock_timestamp(), run_id, job_id, worker,
        fence, revision, tenant, part, 1, priority, attempt, queue
    FROM freed
)
SELECT run_id FROM freed
