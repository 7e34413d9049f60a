-- Let the first waiting runs of some jobs in: from behind their gate to the workers.
-- writes: blocked ready slot run
-- moves: blocked -> ready | skipped
-- locks: partition rows in id order FOR SHARE, then blocked rows
-- index: chrono_blocked_order (gate, part, job_id, due_at), chrono_run_input_pkey,
-- chrono_job_revision_key
--
-- Guard as in fire_if_held: a leader that is none any more lets nobody in. A run that
-- waited longer than its job's max_delay does not begin: it is skipped, past its deadline,
-- unless a person asked for it. One whose job has limits goes on to their gates; their
-- key is the run's own, or that of its revision: its job may have another by now. A job
-- that got one since gives it to those runs, but one that the job's payload fills not to
-- a run with another payload: that passes no gate of a key, as a retry of it does.
WITH locked AS MATERIALIZED (
    SELECT id, fence, term, epoch FROM chrono_partition
    WHERE id = ANY(%(parts)s::smallint[]) ORDER BY id FOR SHARE
), held AS MATERIALIZED (
    SELECT id, fence FROM locked WHERE (id, fence, term, epoch) IN (
        SELECT g.id, g.fence, g.term, g.epoch FROM unnest(
            %(parts)s::smallint[], %(fences)s::bigint[],
            %(terms)s::uuid[], %(epochs)s::bigint[]
        ) AS g (id, fence, term, epoch)
    )
), first AS MATERIALIZED (
    SELECT w.slot, w.gates, w.key, w.filled, h.fence AS held_fence, b.*, (
            b.backfill IS NULL AND b.due_at < coalesce(
                to_timestamp(%(now)s::bigint / 1000.0::float8), clock_timestamp()
            ) - nullif(w.max_delay, 0) * interval '1 millisecond'
        ) IS TRUE AS too_late
    FROM unnest(
        %(part)s::smallint[], %(job)s::uuid[], %(count)s::integer[],
        %(slot)s::boolean[], %(max_delay)s::bigint[], %(gates)s::text[],
        %(key)s::text[], %(filled)s::boolean[]
    ) AS w (part, job, count, slot, max_delay, gates, key, filled)
    JOIN held h ON h.id = w.part
    CROSS JOIN LATERAL (
        SELECT b.ctid AS tid, b.* FROM chrono_blocked b
        WHERE b.gate = %(gate)s::text AND b.part = w.part AND b.job_id = w.job
            AND b.due_at <= coalesce(
                to_timestamp(%(now)s::bigint / 1000.0::float8), clock_timestamp())
        ORDER BY b.due_at, b.run_id LIMIT w.count
        FOR UPDATE SKIP LOCKED
    ) b
), own AS MATERIALIZED (
    SELECT part, run_id, concurrency_key AS key, payload IS NOT NULL AS paid
    FROM chrono_run_input
    WHERE part = ANY(%(parts)s::smallint[])
        AND run_id = ANY(ARRAY(SELECT run_id FROM first WHERE key <> ''))
), revised AS MATERIALIZED (
    SELECT job_id, revision,
        coalesce(policy ->> 'filled_key', policy ->> 'concurrency_key') AS key
    FROM chrono_job_revision
    WHERE job_id = ANY(ARRAY(SELECT job_id FROM first WHERE key <> ''))
        AND revision = ANY(ARRAY(SELECT revision FROM first WHERE key <> ''))
), keyed AS MATERIALIZED (
    SELECT f.*, coalesce(
            o.key, r.key, CASE WHEN f.filled AND o.paid THEN NULL ELSE f.key END
        ) AS of_key
    FROM first f
    LEFT JOIN own o ON o.part = f.part AND o.run_id = f.run_id
    LEFT JOIN revised r ON r.job_id = f.job_id AND r.revision = f.revision
), passing AS MATERIALIZED (
    SELECT k.*, nullif(array_remove(string_to_array(coalesce(
            replace(k.gates, E'\t', k.of_key),
            regexp_replace(k.gates, E'[^\n]*\t', '', 'g')
        ), E'\n'), ''), '{}') AS ahead
    FROM keyed k
), moved AS (
    DELETE FROM chrono_blocked WHERE ctid = ANY(ARRAY(
        SELECT tid FROM passing WHERE too_late OR ahead IS NULL
    ))
), passed_on AS (
    UPDATE chrono_blocked b SET gate = f.ahead[1],
        gates_left = nullif(f.ahead[2:], '{}'),
        reason = CASE split_part(f.ahead[1], '/', 1)
            WHEN 'rate_limit' THEN 32 ELSE 33 END
    FROM passing f WHERE b.ctid = f.tid AND f.ahead IS NOT NULL AND NOT f.too_late
), counted AS (
    INSERT INTO chrono_slot (part, job_id, run_id)
    SELECT part, job_id, run_id FROM passing WHERE slot AND NOT too_late
    ON CONFLICT DO NOTHING
), readied AS (
    INSERT INTO chrono_ready (
        due_at, dispatched_at, run_id, job_id, tag, fence, revision, tenant, part,
        priority, attempt, slice, queue
    )
    SELECT due_at, clock_timestamp(), run_id, job_id, tag, held_fence, revision, tenant,
        part, priority, attempt, %(slice)s::smallint, queue
    FROM passing WHERE NOT too_late AND ahead IS NULL
), skipped AS (
    INSERT INTO chrono_run (
        due_at, dispatched_at, finished_at, id, job_id, fence, revision, tenant, part,
        state, reason, priority, attempt, queue
    )
    SELECT due_at, dispatched_at, clock_timestamp(), run_id, job_id, held_fence,
        revision, tenant, part, 5, 6, priority, attempt, queue
    FROM passing WHERE too_late
    ON CONFLICT DO NOTHING
)
SELECT (SELECT array_agg(id) FROM held),
    (SELECT array_agg(CASE WHEN ahead IS NULL THEN queue END)
    FROM passing WHERE NOT too_late)
