-- Cancel a run that waits in ready: withdrawn, so that no claim takes it, and final.
-- writes: withdrawn run
-- moves: ready -> cancelled
--
-- The row itself may be moving between slices or under an open claim; it is left where
-- it is and taken out by upkeep. The caller looks at the lease again after the commit.
WITH found AS MATERIALIZED (
    SELECT due_at, dispatched_at, run_id, job_id, fence, revision, tenant, part,
        priority, attempt, queue
    FROM chrono_ready WHERE run_id = %(run)s::uuid
), withdrawal AS (
    INSERT INTO chrono_withdrawn (run_id, part) SELECT run_id, part FROM found
    ON CONFLICT DO NOTHING
), ended AS (
    INSERT INTO chrono_run (
        due_at, dispatched_at, finished_at, id, job_id, fence, revision, tenant, part,
        state, reason, priority, attempt, queue
    )
    SELECT due_at, dispatched_at, clock_timestamp(), run_id, job_id, fence, revision,
        tenant, part, 4, %(reason)s::smallint, priority, attempt, queue
    FROM found
    ON CONFLICT DO NOTHING
)
SELECT run_id FROM found
