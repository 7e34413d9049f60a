-- Call off what waits of a backfill: its rows move to the history.
-- writes: backfill blocked run
-- moves: parked -> cancelled
-- index: chrono_backfill_pkey, chrono_blocked_backfill
--
-- At most 10,000 rows, as many as one has. What a leader lets in meanwhile runs.
WITH called_off AS (
    UPDATE chrono_backfill
    SET cancelled_at = coalesce(cancelled_at, clock_timestamp()),
        cancelled_by = CASE WHEN cancelled_at IS NULL THEN %(by)s::text
            ELSE cancelled_by END
    WHERE id = %(backfill)s::uuid AND job_id = %(job)s::uuid
    RETURNING id
), taken AS MATERIALIZED (
    SELECT ctid AS tid FROM chrono_blocked
    WHERE backfill = (SELECT id FROM called_off)
    FOR UPDATE SKIP LOCKED
), moved AS (
    DELETE FROM chrono_blocked WHERE ctid = ANY(ARRAY(SELECT tid FROM taken))
    RETURNING *
), ended AS (
    INSERT INTO chrono_run (
        due_at, dispatched_at, finished_at, id, job_id, fence, revision, tenant, part,
        state, reason, priority, attempt, queue
    )
    SELECT due_at, dispatched_at, clock_timestamp(), run_id, job_id, fence, revision,
        tenant, part, 4, 18, priority, attempt, queue
    FROM moved
    ON CONFLICT DO NOTHING
)
SELECT count(*) FROM moved
