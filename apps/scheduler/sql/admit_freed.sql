-- Let runs in that wait for a target whose circuit is closed.
-- writes: blocked ready
-- moves: parked -> ready
-- locks: blocked rows
-- index: chrono_blocked_gate (gate, due_at, run_id)
--
-- A leader that had not heard of the closing put them there, or the row was forgotten.
WITH first AS MATERIALIZED (
    SELECT b.ctid AS tid, b.* FROM chrono_blocked b
    WHERE b.gate = %(gate)s::text AND b.reason NOT IN (1, 2, 31)
        AND b.due_at <= coalesce(
            to_timestamp(%(now)s::bigint / 1000.0::float8), clock_timestamp())
        AND NOT EXISTS (
            SELECT FROM chrono_target t
            WHERE t.tenant = %(tenant)s::integer
                AND t.name = %(name)s::text COLLATE "C" AND t.state <> 1
        )
    ORDER BY b.due_at, b.run_id LIMIT %(limit)s::integer
    FOR UPDATE OF b SKIP LOCKED
), moved AS (
    DELETE FROM chrono_blocked WHERE ctid = ANY(ARRAY(
        SELECT tid FROM first WHERE gates_left IS NULL
    ))
), passed_on AS (
    UPDATE chrono_blocked SET gate = gates_left[1],
        gates_left = nullif(gates_left[2:], '{}'),
        reason = CASE split_part(gates_left[1], '/', 1)
            WHEN 'rate_limit' THEN 32 ELSE 33 END
    WHERE ctid = ANY(ARRAY(SELECT tid FROM first WHERE gates_left IS NOT NULL))
), readied AS (
    INSERT INTO chrono_ready (
        due_at, dispatched_at, run_id, job_id, tag, fence, revision, tenant, part,
        priority, attempt, slice, queue
    )
    SELECT due_at, clock_timestamp(), run_id, job_id, tag, fence, revision, tenant,
        part, priority, attempt, %(slice)s::smallint, queue
    FROM first WHERE gates_left IS NULL
)
SELECT CASE WHEN gates_left IS NULL THEN queue END FROM first
