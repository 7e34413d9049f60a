-- Let the first runs of a target in as probes: its circuit is open, and they are due.
-- writes: target blocked ready
-- moves: parked -> ready
-- locks: the target's row, then blocked rows
-- index: chrono_target_pkey, chrono_blocked_gate (gate, due_at, run_id)
--
-- The row's lock and what it says under the lock make that one keeper alone does it, and
-- once. Probes of before that came to nothing are replaced, but not while one is in
-- execution. Only runs for whose queue a living worker asks can tell anything.
WITH ripe AS MATERIALIZED (
    SELECT t.half_open_probes AS most, t.open_duration_s FROM chrono_target t
    WHERE t.tenant = %(tenant)s::integer AND t.name = %(name)s::text COLLATE "C"
        AND t.state IN (2, 3) AND t.probe_at <= coalesce(
            to_timestamp(%(now)s::bigint / 1000.0::float8), clock_timestamp())
        AND NOT EXISTS (
            SELECT FROM chrono_lease l WHERE l.run_id = ANY(t.probes)
        )
    FOR UPDATE SKIP LOCKED
), served AS MATERIALIZED (
    SELECT DISTINCT q.queue FROM chrono_worker w CROSS JOIN unnest(w.queues) AS q (queue)
    WHERE NOT w.dead AND w.stopped_at IS NULL
        AND w.beat_at > clock_timestamp() - %(ttl)s::bigint * interval '1 ms'
), first AS MATERIALIZED (
    SELECT b.* FROM ripe r CROSS JOIN LATERAL (
        SELECT b.ctid AS tid, b.* FROM chrono_blocked b
        WHERE b.gate = %(gate)s::text AND b.reason NOT IN (1, 2, 31)
            AND b.due_at <= coalesce(
                to_timestamp(%(now)s::bigint / 1000.0::float8), clock_timestamp())
            AND b.queue = ANY(ARRAY(SELECT queue FROM served))
        ORDER BY b.due_at, b.run_id LIMIT r.most
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
    UPDATE chrono_target SET state = 3, probes = ARRAY(SELECT run_id FROM first),
        changed_at = coalesce(
            to_timestamp(%(now)s::bigint / 1000.0::float8), clock_timestamp()),
        probe_at = coalesce(
            to_timestamp(%(now)s::bigint / 1000.0::float8), clock_timestamp()
        ) + (SELECT open_duration_s FROM ripe) * interval '1 s'
    WHERE tenant = %(tenant)s::integer AND name = %(name)s::text COLLATE "C"
        AND EXISTS (SELECT FROM first)
)
SELECT CASE WHEN gates_left IS NULL THEN queue END FROM first
