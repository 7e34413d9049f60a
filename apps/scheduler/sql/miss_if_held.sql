-- Decide all that some schedules missed: what is given up, what runs in its own lane.
-- writes: timer timer_far plan_end occurrence blocked
-- moves: timer -> blocked | occurrence (skipped)
-- locks: partition rows in id order FOR SHARE, then timer rows
-- index: {bucket} (part, due_at, ref, kind, version)
--
-- Guard, look-up and next timers as in fire_if_held. The pieces of a schedule come in
-- by arrays of their own: reason 0 is a run, any other a stretch that is skipped. Those
-- that run wait in blocked, and live runs pass them. A schedule with a piece that lies
-- ahead of the database's clock is left as it is: a leader's clock was wrong.
--
-- IS TRUE has the ledger hashed; as a join it was read once for each piece, 4 s for 5,000.
WITH locked AS MATERIALIZED (
    SELECT id, fence, term, epoch FROM chrono_partition
    WHERE id = ANY(%(parts)s::smallint[]) ORDER BY id FOR SHARE
), held AS MATERIALIZED (
    SELECT id FROM locked WHERE (id, fence, term, epoch) IN (
        SELECT g.id, g.fence, g.term, g.epoch FROM unnest(
            %(parts)s::smallint[], %(fences)s::bigint[],
            %(terms)s::uuid[], %(epochs)s::bigint[]
        ) AS g (id, fence, term, epoch)
    )
), clock AS MATERIALIZED (
    SELECT coalesce(
        to_timestamp(%(now)s::bigint / 1000.0::float8), clock_timestamp()
    ) AS now
), due AS MATERIALIZED (
    SELECT d.n, d.part, to_timestamp(d.due / 1000.0::float8) AS due_at, d.ref,
        d.version, to_timestamp(d.scheduled_for / 1000.0::float8) AS scheduled_for,
        d.revision, d.tenant, d.queue, d.tag, d.fence, d.shift,
        to_timestamp(nullif(d.next_for, 0) / 1000.0::float8) AS next_for,
        to_timestamp(
            CASE WHEN d.next_due > 0 THEN greatest(d.next_due, d.due + 1) END
            / 1000.0::float8
        ) AS next_due
    FROM unnest(
        %(ns)s::integer[], %(part)s::smallint[], %(due)s::bigint[], %(ref)s::uuid[],
        %(version)s::integer[], %(scheduled_for)s::bigint[], %(revision)s::integer[],
        %(tenant)s::integer[], %(queue)s::text[], %(tag)s::bigint[],
        %(fence)s::bigint[], %(shift)s::bigint[], %(next_for)s::bigint[],
        %(next_due)s::bigint[]
    ) AS d (
        n, part, due, ref, version, scheduled_for, revision, tenant, queue, tag, fence,
        shift, next_for, next_due
    )
    WHERE d.part = ANY(ARRAY(SELECT id FROM held))
        AND to_timestamp(d.due / 1000.0::float8) <= (SELECT now FROM clock)
        AND d.n <> ALL(ARRAY(
            SELECT p.n FROM unnest(%(p_n)s::integer[], %(p_last)s::bigint[])
                AS p (n, last)
            WHERE to_timestamp(p.last / 1000.0::float8) > (SELECT now FROM clock)
        ))
), taken AS MATERIALIZED (
    SELECT d.*, t.tid, t.job_id, t.prev, t.remaining
    FROM due d CROSS JOIN LATERAL (
        SELECT t.ctid AS tid, t.job_id, t.prev, t.remaining
        FROM {bucket} t
        WHERE t.part = d.part AND t.due_at = d.due_at AND t.ref = d.ref
            AND t.kind = 1 AND t.version = d.version
            AND t.scheduled_for = d.scheduled_for
        OFFSET 0 FOR UPDATE
    ) t
), deleted AS (
    DELETE FROM {bucket} WHERE ctid = ANY(ARRAY(SELECT tid FROM taken))
), pieces AS MATERIALIZED (
    SELECT t.*, p.run_id, nullif(p.reason, 0) AS reason,
        p.first / 1000.0::float8 AS first, nullif(p.count, 1) AS count,
        CASE WHEN p.count > 1 THEN to_timestamp(p.last / 1000.0::float8) END AS last_for
    FROM unnest(
        %(p_n)s::integer[], %(p_first)s::bigint[], %(p_run_id)s::uuid[],
        %(p_reason)s::smallint[], %(p_count)s::integer[], %(p_last)s::bigint[]
    ) AS p (n, first, run_id, reason, count, last) JOIN taken t ON t.n = p.n
), ledger AS (
    INSERT INTO chrono_occurrence (
        scheduled_for, job_id, run_id, fence, version, revision, part, outcome, kind,
        reason, occurrences, last_scheduled_for
    )
    SELECT to_timestamp(first), job_id, run_id, fence, version, revision, part,
        CASE WHEN reason IS NULL THEN 1 ELSE 2 END,
        CASE WHEN reason IS NULL THEN 2 ELSE 1 END, reason, count, last_for
    FROM pieces
    ON CONFLICT DO NOTHING
    RETURNING part, job_id, run_id, outcome
), held_back AS (
    INSERT INTO chrono_blocked (
        due_at, dispatched_at, run_id, job_id, tag, fence, revision, tenant, part,
        priority, attempt, queue, gate, reason
    )
    SELECT to_timestamp(first + shift / 1000.0::float8), clock_timestamp(), run_id,
        job_id, tag, fence, revision, tenant, part, %(priority)s::smallint, 1, queue,
        %(gate)s::text, %(gate_reason)s::smallint
    FROM pieces WHERE reason IS NULL AND ((part, job_id, run_id) IN (
        SELECT part, job_id, run_id FROM ledger WHERE outcome = 1
    )) IS TRUE
    ON CONFLICT DO NOTHING
    RETURNING job_id
), following AS MATERIALIZED (
    SELECT next_due, next_for, ref, job_id, prev, version, revision, part,
        CASE WHEN remaining IS NOT NULL THEN remaining - (
            SELECT count(*) FROM ledger l WHERE l.job_id = t.job_id AND l.outcome = 1
        )::integer END AS remaining
    FROM taken t
), next_near AS (
    INSERT INTO chrono_timer (
        due_at, scheduled_for, ref, job_id, prev, version, revision, part, kind,
        remaining
    )
    SELECT next_due, next_for, ref, job_id, prev, version, revision, part, 1, remaining
    FROM following
    WHERE next_due < to_timestamp(%(horizon)s::bigint / 1000.0::float8)
        AND (remaining > 0) IS NOT FALSE
    ON CONFLICT DO NOTHING
), next_far AS (
    INSERT INTO chrono_timer_far (
        due_at, scheduled_for, ref, job_id, prev, version, revision, part, kind,
        remaining
    )
    SELECT next_due, next_for, ref, job_id, prev, version, revision, part, 1, remaining
    FROM following
    WHERE next_due >= to_timestamp(%(horizon)s::bigint / 1000.0::float8)
        AND (remaining > 0) IS NOT FALSE
    ON CONFLICT DO NOTHING
), over AS (
    INSERT INTO chrono_plan_end (part, job_id, version, remaining)
    SELECT part, ref, version, greatest(remaining, 0) FROM following
    WHERE remaining IS NOT NULL AND (next_due IS NULL OR remaining <= 0)
    ON CONFLICT DO NOTHING
)
SELECT (SELECT array_agg(id) FROM held), (SELECT array_agg(n) FROM taken),
    (SELECT count(*) FROM held_back)
