-- Let runs in as many as their rate allows now; skip those above it where it drops.
-- writes: pass blocked ready run
-- moves: parked -> ready | skipped
-- locks: blocked rows
-- index: chrono_pass_pkey, chrono_blocked_gate (gate, due_at, run_id)
--
-- In the transaction that has the gate's lock, in a statement of its own: its snapshot is
-- younger than what the one before has counted. A run that is to be tried again waits
-- also where new ones are dropped.
WITH moment AS MATERIALIZED (
    SELECT coalesce(
        to_timestamp(%(now)s::bigint / 1000.0::float8), clock_timestamp()) AS at
), start AS MATERIALIZED (
    SELECT at - %(period)s::bigint * interval '1 millisecond' AS at FROM moment
), gone AS (
    DELETE FROM chrono_pass
    WHERE gate = %(gate)s::text COLLATE "C" AND admitted_at <= (SELECT at FROM start)
), free AS MATERIALIZED (
    SELECT greatest(0, %(limit)s::integer - count(*)) AS n FROM chrono_pass
    WHERE gate = %(gate)s::text COLLATE "C" AND admitted_at > (SELECT at FROM start)
), first AS MATERIALIZED (
    SELECT b.ctid AS tid, b.* FROM chrono_blocked b
    WHERE b.gate = %(gate)s::text AND b.reason NOT IN (1, 2, 31)
        AND b.due_at <= (SELECT at FROM moment)
    ORDER BY b.due_at, b.run_id LIMIT (SELECT n FROM free)
    FOR UPDATE SKIP LOCKED
), surplus AS MATERIALIZED (
    SELECT b.ctid AS tid, b.* FROM chrono_blocked b
    WHERE %(drops)s::boolean AND b.gate = %(gate)s::text AND b.reason NOT IN (1, 2, 31)
        AND b.due_at <= (SELECT at FROM moment) AND b.attempt = 1
        AND b.ctid <> ALL(ARRAY(SELECT tid FROM first))
    ORDER BY b.due_at, b.run_id LIMIT 500
    FOR UPDATE SKIP LOCKED
), moved AS (
    DELETE FROM chrono_blocked WHERE ctid = ANY(ARRAY(
        SELECT tid FROM first WHERE gates_left IS NULL
        UNION ALL SELECT tid FROM surplus
    ))
), passed_on AS (
    UPDATE chrono_blocked SET gate = gates_left[1],
        gates_left = nullif(gates_left[2:], '{}'),
        reason = CASE split_part(gates_left[1], '/', 1)
            WHEN 'rate_limit' THEN 32 ELSE 33 END
    WHERE ctid = ANY(ARRAY(SELECT tid FROM first WHERE gates_left IS NOT NULL))
), skipped AS (
    INSERT INTO chrono_run (
        due_at, dispatched_at, finished_at, id, job_id, fence, revision, tenant, part,
        state, reason, priority, attempt, queue
    )
    SELECT due_at, dispatched_at, clock_timestamp(), run_id, job_id, fence, revision,
        tenant, part, 5, 10, priority, attempt, queue
    FROM surplus
    ON CONFLICT DO NOTHING
), readied AS (
    INSERT INTO chrono_ready (
        due_at, dispatched_at, run_id, job_id, tag, fence, revision, tenant, part,
        priority, attempt, slice, queue
    )
    SELECT due_at, clock_timestamp(), run_id, job_id, tag, fence, revision, tenant,
        part, priority, attempt, %(slice)s::smallint, queue
    FROM first WHERE gates_left IS NULL
), counted AS (
    INSERT INTO chrono_pass (gate, admitted_at, run_id, part)
    SELECT %(gate)s::text, (SELECT at FROM moment), run_id, part FROM first
    ON CONFLICT DO NOTHING
)
SELECT CASE WHEN gates_left IS NULL THEN queue END FROM first
