-- End an execution at once: its lease goes, whatever its worker still does.
-- writes: lease run lease_end
-- moves: running -> cancelled
-- index: chrono_lease_pkey
--
-- Its worker is told by its next beat, and stops the handler.
WITH ended AS (
    DELETE FROM chrono_lease
    WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
    RETURNING *
), told AS (
    INSERT INTO chrono_lease_end (worker, run_id) SELECT worker, run_id FROM ended
    ON CONFLICT DO NOTHING
)
INSERT INTO chrono_run (
    due_at, dispatched_at, started_at, finished_at, id, job_id, worker, fence, revision,
    tenant, part, state, reason, priority, attempt, queue
)
SELECT due_at, dispatched_at, started_at, clock_timestamp(), run_id, job_id, worker,
    fence, revision, tenant, part, 4, %(reason)s::smallint, priority, attempt, queue
FROM ended
ON CONFLICT DO NOTHING
RETURNING id
