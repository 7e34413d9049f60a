-- Fires up to some hundred due timers of many partitions in one fenced statement.
-- writes: timer timer_far plan_end given_back occurrence ready blocked slot
-- moves: timer -> ready | blocked | occurrence (skipped)
-- locks: partition rows in id order FOR SHARE, then timer rows
-- index: {bucket} (part, due_at, ref, kind, version)
--
-- The guard compares fence, term and epoch under FOR SHARE: a takeover or an edit waits
-- for this statement, or this statement waits for it, re-reads the row and drops the
-- partition. Everything below draws its rows from `held`. A timer already moved or
-- edited away is simply not found. The look-up by LATERAL … OFFSET 0 can't flip to a
-- scan where statistics say the bucket is empty.
--
-- fire_undecided goes before it and does the same for nearly every batch; this one is
-- sent where that one met something that was decided before. What is said here holds for
-- both.
--
-- A next timer is due a millisecond after the row it replaces, at least: that row is
-- still there when the insert looks for its key, and nothing would be planned again.
--
-- What is left of a number of runs rides in the next timer; where there is none, a row
-- keeps it for who gives the schedule a later end. A late occurrence took its run off in
-- advance; where it is skipped, it gives it back.
--
-- Nearly all runs go to ready and have no slot: those that are held by a gate and those
-- that count against a bound come in by arrays of their own, most of the time empty.
--
-- Runs are looked up by an array, never one by one: a look-up by a value of another
-- row prunes partitions at run time, and PostgreSQL 18 up to 18.6 then reads freed
-- memory, and ends the whole server, where the guard had to read a row again. With
-- an order asked for and no sort allowed, no index but the key can answer.
WITH locked AS MATERIALIZED (
    SELECT id, fence, term, epoch FROM chrono_partition
    WHERE id = ANY(%(parts)s::smallint[]) ORDER BY id FOR SHARE
), held AS MATERIALIZED (
    SELECT id FROM locked WHERE ((id, fence, term, epoch) IN (
        SELECT g.id, g.fence, g.term, g.epoch FROM unnest(
            %(parts)s::smallint[], %(fences)s::bigint[],
            %(terms)s::uuid[], %(epochs)s::bigint[]
        ) AS g (id, fence, term, epoch)
    )) IS TRUE
), due AS MATERIALIZED (
    SELECT d.n, d.part, to_timestamp(d.due / 1000.0::float8) AS due_at, d.ref, d.kind,
        d.version, to_timestamp(d.scheduled_for / 1000.0::float8) AS scheduled_for,
        d.run_id, d.revision, d.tenant, d.queue, d.priority, d.tag, d.fence,
        nullif(d.skip, 0) AS skip, d.bounded,
        to_timestamp(nullif(d.next_for, 0) / 1000.0::float8) AS next_for,
        to_timestamp(
            CASE WHEN d.next_due > 0 THEN greatest(d.next_due, d.due + 1) END
            / 1000.0::float8
        ) AS next_due
    FROM unnest(
        %(ns)s::integer[], %(part)s::smallint[], %(due)s::bigint[], %(ref)s::uuid[],
        %(kind)s::smallint[], %(version)s::integer[], %(scheduled_for)s::bigint[],
        %(run_id)s::uuid[], %(revision)s::integer[], %(tenant)s::integer[],
        %(queue)s::text[], %(priority)s::smallint[], %(tag)s::bigint[],
        %(fence)s::bigint[], %(skip)s::smallint[], %(bounded)s::boolean[],
        %(next_for)s::bigint[], %(next_due)s::bigint[]
    ) AS d (
        n, part, due, ref, kind, version, scheduled_for, run_id, revision, tenant,
        queue, priority, tag, fence, skip, bounded, next_for, next_due
    )
    WHERE (d.part IN (SELECT id FROM held)) IS TRUE
        AND to_timestamp(d.due / 1000.0::float8) <= coalesce(
            to_timestamp(%(now)s::bigint / 1000.0::float8), clock_timestamp())
), taken AS MATERIALIZED (
    SELECT d.*, t.tid, t.job_id, t.attempt_group, t.attempt, t.prev, t.remaining
    FROM due d CROSS JOIN LATERAL (
        SELECT t.ctid AS tid, t.job_id, t.attempt_group, t.attempt, t.prev, t.remaining
        FROM {bucket} t
        WHERE t.part = d.part AND t.due_at = d.due_at AND t.ref = d.ref
            AND t.kind = d.kind AND t.version = d.version
            AND t.scheduled_for = d.scheduled_for
        OFFSET 0 FOR UPDATE
    ) t
), deleted AS (
    DELETE FROM {bucket} WHERE ctid = ANY(ARRAY(SELECT tid FROM taken))
), claimed_slots AS MATERIALIZED (
    SELECT s.part, s.job_id, s.run_id FROM taken t CROSS JOIN LATERAL (
        SELECT s.part, s.job_id, s.run_id FROM chrono_slot s
        WHERE t.bounded AND s.part = t.part AND s.job_id = t.job_id OFFSET 0
    ) s
), settled AS MATERIALIZED (
    SELECT r.id, r.part FROM chrono_run r WHERE r.id = ANY(ARRAY(
        SELECT prev FROM taken WHERE bounded AND prev IS NOT NULL
        UNION ALL SELECT run_id FROM claimed_slots
    )) ORDER BY r.id, r.part
), decided AS MATERIALIZED (
    -- 2 = overlap; -1 only moves the timer, and decides nothing.
    SELECT t.*, CASE
        WHEN t.skip IS NOT NULL THEN t.skip
        WHEN t.bounded AND t.prev IS NOT NULL
            AND ((t.prev, t.part) IN (SELECT id, part FROM settled)) IS NOT TRUE THEN 2
        WHEN t.bounded AND (t.part, t.job_id) IN (
            SELECT part, job_id FROM claimed_slots
            WHERE ((run_id, part) IN (SELECT id, part FROM settled)) IS NOT TRUE
        ) THEN 2
    END::smallint AS reason
    FROM taken t
), single AS MATERIALIZED (
    -- The ledger takes one of two timers of an instant; so must the ready rows.
    SELECT min(n) AS n FROM decided WHERE kind <> 4 AND reason IS DISTINCT FROM -1
    GROUP BY part, job_id, scheduled_for, attempt_group
), ledger AS (
    INSERT INTO chrono_occurrence (
        scheduled_for, job_id, run_id, fence, version, revision, attempt_group, part,
        outcome, kind, reason
    )
    SELECT scheduled_for, job_id, run_id, fence, version, revision, attempt_group, part,
        CASE WHEN reason IS NULL THEN 1 ELSE 2 END, kind, reason
    FROM decided WHERE (n IN (SELECT n FROM single)) IS TRUE
    ON CONFLICT DO NOTHING
    RETURNING part, job_id, scheduled_for, attempt_group
), judged AS MATERIALIZED (
    SELECT d.*, CASE
        WHEN d.reason = -1 THEN -3
        WHEN d.kind = 4 THEN CASE
            WHEN (SELECT true FROM chrono_withdrawn w
                WHERE w.run_id = d.run_id AND w.part = d.part LIMIT 1) THEN -2
            ELSE 0 END
        WHEN d.n IN (SELECT n FROM single)
            AND (d.part, d.job_id, d.scheduled_for, d.attempt_group) IN (
                SELECT part, job_id, scheduled_for, attempt_group FROM ledger
            ) THEN coalesce(d.reason, 0)
        ELSE -1
    END::smallint AS verdict
    FROM decided d
), next_near AS (
    INSERT INTO chrono_timer (
        due_at, scheduled_for, ref, job_id, prev, version, revision, part, kind,
        remaining
    )
    SELECT next_due, next_for, ref, job_id,
        CASE WHEN verdict = 0 THEN run_id ELSE prev END, version, revision, part, kind,
        CASE WHEN verdict = 0 THEN remaining - 1 ELSE remaining END
    FROM judged
    WHERE next_due < to_timestamp(%(horizon)s::bigint / 1000.0::float8)
        AND (verdict <> 0 OR remaining IS DISTINCT FROM 1)
    ON CONFLICT DO NOTHING
), next_far AS (
    INSERT INTO chrono_timer_far (
        due_at, scheduled_for, ref, job_id, prev, version, revision, part, kind,
        remaining
    )
    SELECT next_due, next_for, ref, job_id,
        CASE WHEN verdict = 0 THEN run_id ELSE prev END, version, revision, part, kind,
        CASE WHEN verdict = 0 THEN remaining - 1 ELSE remaining END
    FROM judged
    WHERE next_due >= to_timestamp(%(horizon)s::bigint / 1000.0::float8)
        AND (verdict <> 0 OR remaining IS DISTINCT FROM 1)
    ON CONFLICT DO NOTHING
), over AS (
    INSERT INTO chrono_plan_end (part, job_id, version, remaining)
    SELECT part, job_id, version,
        CASE WHEN verdict = 0 THEN remaining - 1 ELSE remaining END
    FROM judged
    WHERE kind = 1 AND remaining IS NOT NULL
        AND (next_due IS NULL OR (verdict = 0 AND remaining = 1))
    ON CONFLICT DO NOTHING
), given_back AS (
    INSERT INTO chrono_given_back (part, job_id, run_id)
    SELECT part, job_id, run_id FROM judged
    WHERE kind = 2 AND remaining IS NOT NULL AND verdict > 0
    ON CONFLICT DO NOTHING
), gated AS MATERIALIZED (
    SELECT g.n, g.gate, g.reason, string_to_array(nullif(g.ahead, ''), E'\n') AS ahead
    FROM unnest(
        %(gated_n)s::integer[], %(gate)s::text[], %(gate_reason)s::smallint[],
        %(gates_left)s::text[]
    ) AS g (n, gate, reason, ahead)
), readied AS (
    INSERT INTO chrono_ready (
        due_at, dispatched_at, run_id, job_id, tag, fence, revision, tenant, part,
        priority, attempt, slice, queue
    )
    SELECT due_at, clock_timestamp(), run_id, job_id, tag, fence, revision, tenant,
        part, priority, attempt, %(slice)s::smallint, queue
    FROM judged WHERE verdict = 0 AND (n IN (SELECT n FROM gated)) IS NOT TRUE
), held_back AS (
    INSERT INTO chrono_blocked (
        due_at, dispatched_at, run_id, job_id, tag, fence, revision, tenant, part,
        priority, attempt, queue, gate, reason, gates_left
    )
    SELECT j.due_at, clock_timestamp(), j.run_id, j.job_id, j.tag, j.fence, j.revision,
        j.tenant, j.part, j.priority, j.attempt, j.queue, g.gate, g.reason, g.ahead
    FROM gated g JOIN judged j ON j.n = g.n WHERE j.verdict = 0
    ON CONFLICT DO NOTHING
), counted AS (
    INSERT INTO chrono_slot (part, job_id, run_id)
    SELECT part, job_id, run_id FROM judged
    WHERE verdict = 0 AND (n = ANY(%(slot_n)s::integer[])) IS TRUE
    ON CONFLICT DO NOTHING
)
SELECT (SELECT array_agg(id) FROM held),
    (SELECT array_agg(n) FROM judged),
    (SELECT array_agg(verdict) FROM judged)
