-- Cancel a run that waits behind a gate: its row moves to the history.
-- writes: blocked run
-- moves: parked -> cancelled
-- index: chrono_blocked_pkey
--
-- Its occurrence is decided already. The delete waits for a leader that lets it in.
WITH moved AS (
    DELETE FROM chrono_blocked
    WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
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
