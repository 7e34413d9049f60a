-- Fires as fire_if_held does, where nothing of it was decided before.
-- writes: timer timer_far plan_end given_back occurrence ready blocked slot
-- moves: timer -> ready | blocked | occurrence (skipped)
-- locks: partition rows in id order FOR SHARE, then timer rows
-- index: {bucket} (part, due_at, ref, kind, version)
--
-- Where an occurrence was decided before, or a next timer is there already, all of it
-- fails by the unique key (23505), and fire_if_held decides row by row. So nothing has
-- to be asked of the ledger, and neither insert looks for its key first nor confirms
-- that it was new: of what a fire costs the server, nearly a third.
--
-- Timers are found without a lock, and those fire that the delete by ctid gives back: a
-- timer is never updated, so one that is gone by then is found by nobody.
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
), found AS MATERIALIZED (
    SELECT d.*, t.tid, t.job_id, t.attempt_group, t.attempt, t.prev, t.remaining
    FROM (
        SELECT d.n, d.part, to_timestamp(d.due / 1000.0::float8) AS due_at, d.ref,
            d.kind, d.version,
            to_timestamp(d.scheduled_for / 1000.0::float8) AS scheduled_for,
            d.run_id, d.revision, d.tenant, d.queue, d.priority, d.tag, d.fence,
            nullif(d.skip, 0) AS skip, d.bounded,
            to_timestamp(nullif(d.next_for, 0) / 1000.0::float8) AS next_for,
            to_timestamp(
                CASE WHEN d.next_due > 0 THEN greatest(d.next_due, d.due + 1) END
                / 1000.0::float8
            ) AS next_due
        FROM unnest(
            %(ns)s::integer[], %(part)s::smallint[], %(due)s::bigint[],
            %(ref)s::uuid[], %(kind)s::smallint[], %(version)s::integer[],
            %(scheduled_for)s::bigint[], %(run_id)s::uuid[], %(revision)s::integer[],
            %(tenant)s::integer[], %(queue)s::text[], %(priority)s::smallint[],
            %(tag)s::bigint[], %(fence)s::bigint[], %(skip)s::smallint[],
            %(bounded)s::boolean[], %(next_for)s::bigint[], %(next_due)s::bigint[]
        ) AS d (
            n, part, due, ref, kind, version, scheduled_for, run_id, revision, tenant,
            queue, priority, tag, fence, skip, bounded, next_for, next_due
        )
        WHERE (d.part IN (SELECT id FROM held)) IS TRUE
            AND to_timestamp(d.due / 1000.0::float8) <= coalesce(
                to_timestamp(%(now)s::bigint / 1000.0::float8), clock_timestamp())
    ) d CROSS JOIN LATERAL (
        SELECT t.ctid AS tid, t.job_id, t.attempt_group, t.attempt, t.prev, t.remaining
        FROM {bucket} t
        WHERE t.part = d.part AND t.due_at = d.due_at AND t.ref = d.ref
            AND t.kind = d.kind AND t.version = d.version
            AND t.scheduled_for = d.scheduled_for
        OFFSET 0
    ) t
), deleted AS (
    DELETE FROM {bucket} WHERE ctid = ANY(ARRAY(SELECT tid FROM found))
    RETURNING ctid AS tid
), claimed_slots AS MATERIALIZED (
    SELECT s.part, s.job_id, s.run_id FROM found t CROSS JOIN LATERAL (
        SELECT s.part, s.job_id, s.run_id FROM chrono_slot s
        WHERE t.bounded AND s.part = t.part AND s.job_id = t.job_id OFFSET 0
    ) s
), settled AS MATERIALIZED (
    SELECT r.id, r.part FROM chrono_run r WHERE r.id = ANY(ARRAY(
        SELECT prev FROM found WHERE bounded AND prev IS NOT NULL
        UNION ALL SELECT run_id FROM claimed_slots
    )) ORDER BY r.id, r.part
), judged AS MATERIALIZED (
    -- 2 = overlap; -1 only moves the timer, and decides nothing.
    SELECT d.*, CASE
        WHEN d.reason = -1 THEN -3
        WHEN d.kind = 4 THEN CASE
            WHEN (SELECT true FROM chrono_withdrawn w
                WHERE w.run_id = d.run_id AND w.part = d.part LIMIT 1) THEN -2
            ELSE 0 END
        ELSE coalesce(d.reason, 0)
    END::smallint AS verdict
    FROM (
        SELECT t.*, CASE
            WHEN t.skip IS NOT NULL THEN t.skip
            WHEN t.bounded AND t.prev IS NOT NULL
                AND ((t.prev, t.part) IN (SELECT id, part FROM settled)) IS NOT TRUE
                THEN 2
            WHEN t.bounded AND (t.part, t.job_id) IN (
                SELECT part, job_id FROM claimed_slots
                WHERE ((run_id, part) IN (SELECT id, part FROM settled)) IS NOT TRUE
            ) THEN 2
        END::smallint AS reason
        FROM found t WHERE (t.tid IN (SELECT tid FROM deleted)) IS TRUE OFFSET 0
    ) d
), ledger AS (
    INSERT INTO chrono_occurrence (
        scheduled_for, job_id, run_id, fence, version, revision, attempt_group, part,
        outcome, kind, reason
    )
    SELECT scheduled_for, job_id, run_id, fence, version, revision, attempt_group, part,
        CASE WHEN verdict = 0 THEN 1 ELSE 2 END, kind, nullif(verdict, 0)
    FROM judged WHERE kind <> 4 AND verdict >= 0
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
