-- Let runs in by their limit of a key, as many as are free of it at once.
-- writes: pass blocked ready
-- moves: parked -> ready
-- locks: blocked rows
-- index: chrono_pass_key, chrono_blocked_gate (gate, due_at, run_id)
--
-- Jobs that name the same key with other limits count, too: whoever is let in finds fewer
-- than its own limit under way. Behind the rivals, gates of the same key, others may wait
-- that were due before: nobody goes before them, or the lowest limit would never have
-- its turn.
--
-- In the transaction that has the key's lock, in a statement of its own: its snapshot is
-- younger than what the one before has counted. A pass is over when its run is leased no
-- more, and lies in the history, in a timer or behind a gate, but for that of a limit to
-- which it went on from here; else it may be in ready. Who is to be executed alone keeps
-- its pass: it comes by no other gate before that.
--
-- Settled runs are looked up by an array, never one by one: see fire_if_held.
WITH moment AS MATERIALIZED (
    SELECT coalesce(
        to_timestamp(%(now)s::bigint / 1000.0::float8), clock_timestamp()) AS at
), mine AS MATERIALIZED (
    SELECT gate, admitted_at, run_id, part FROM chrono_pass
    WHERE starts_with(gate, 'concurrency_limit/')
        AND regexp_replace(gate, '^(concurrency_limit/[0-9]+/)[0-9]+/', '\1*/')
            = %(shared)s::text COLLATE "C"
), settled AS MATERIALIZED (
    SELECT id FROM chrono_run WHERE id = ANY(ARRAY(SELECT run_id FROM mine))
    ORDER BY id, part
), over AS MATERIALIZED (
    SELECT m.gate, m.admitted_at, m.run_id, m.part FROM mine m
    WHERE NOT EXISTS (
            SELECT FROM chrono_lease l WHERE l.run_id = m.run_id AND l.part = m.part)
        AND coalesce(
            CASE WHEN m.run_id IN (SELECT id FROM settled) THEN true END,
            (SELECT b.reason <> 33 OR EXISTS (
                    SELECT FROM unnest(b.gate || b.gates_left) AS g (gate)
                    WHERE %(shared)s::text = regexp_replace(
                        g.gate, '^(concurrency_limit/[0-9]+/)[0-9]+/', '\1*/')
                ) FROM chrono_blocked b
                WHERE b.run_id = m.run_id AND b.part = m.part
                    AND b.gate <> 'process_crash' LIMIT 1),
            (SELECT true FROM chrono_timer t
                WHERE t.part = m.part AND t.ref = m.run_id AND t.kind <> 1 LIMIT 1),
            (SELECT true FROM chrono_timer_far t
                WHERE t.part = m.part AND t.ref = m.run_id AND t.kind <> 1 LIMIT 1),
            false)
), gone AS (
    DELETE FROM chrono_pass
    WHERE starts_with(gate, 'concurrency_limit/')
        AND regexp_replace(gate, '^(concurrency_limit/[0-9]+/)[0-9]+/', '\1*/')
            = %(shared)s::text COLLATE "C"
        AND (gate, admitted_at, run_id, part) IN (
            SELECT gate, admitted_at, run_id, part FROM over)
), free AS MATERIALIZED (
    SELECT greatest(0, %(limit)s::integer - (SELECT count(*) FROM mine)
        + (SELECT count(*) FROM over)) AS n
), before AS MATERIALIZED (
    SELECT min(h.due_at) AS due_at
    FROM unnest(%(rivals)s::text[]) AS r (gate) CROSS JOIN LATERAL (
        SELECT b.due_at FROM chrono_blocked b
        WHERE b.gate = r.gate AND b.reason NOT IN (1, 2, 31)
        ORDER BY b.due_at, b.run_id LIMIT 1
    ) h
), first AS MATERIALIZED (
    SELECT b.ctid AS tid, b.* FROM chrono_blocked b
    WHERE b.gate = %(gate)s::text AND b.reason NOT IN (1, 2, 31)
        AND b.due_at <= (
            SELECT least(m.at, (SELECT due_at FROM before)) FROM moment m)
    ORDER BY b.due_at, b.run_id LIMIT (SELECT n FROM free)
    FOR UPDATE SKIP LOCKED
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
), counted AS (
    INSERT INTO chrono_pass (gate, admitted_at, run_id, part)
    SELECT %(gate)s::text, (SELECT at FROM moment), run_id, part FROM first
    ON CONFLICT DO NOTHING
)
SELECT CASE WHEN gates_left IS NULL THEN queue END FROM first
