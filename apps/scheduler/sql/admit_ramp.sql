-- Let the next runs of a target in whose circuit closes.
-- writes: target blocked ready
-- moves: parked -> ready
-- locks: the target's row, then blocked rows
-- index: chrono_target_pkey, chrono_blocked_gate (gate, due_at, run_id)
--
-- Guarded by the number let in that the keeper has counted with.
WITH ramp AS MATERIALIZED (
    SELECT t.let_in FROM chrono_target t
    WHERE t.tenant = %(tenant)s::integer AND t.name = %(name)s::text COLLATE "C"
        AND t.state = 4 AND t.let_in = %(let_in)s::integer
        AND t.changed_at = to_timestamp(%(changed_at)s::bigint / 1000.0::float8)
    FOR UPDATE SKIP LOCKED
), first AS MATERIALIZED (
    SELECT b.* FROM ramp CROSS JOIN LATERAL (
        SELECT b.ctid AS tid, b.* FROM chrono_blocked b
        WHERE b.gate = %(gate)s::text AND b.reason NOT IN (1, 2, 31)
            AND b.due_at <= coalesce(
                to_timestamp(%(now)s::bigint / 1000.0::float8), clock_timestamp())
        ORDER BY b.due_at, b.run_id LIMIT %(count)s::integer
        FOR UPDATE SKIP LOCKED
    ) b
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
), marked AS (
    UPDATE chrono_target SET let_in = let_in + (SELECT count(*) FROM first)
    WHERE tenant = %(tenant)s::integer AND name = %(name)s::text COLLATE "C"
        AND EXISTS (SELECT FROM first)
)
SELECT CASE WHEN gates_left IS NULL THEN queue END FROM first
