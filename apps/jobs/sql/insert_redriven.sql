-- Run dead letters again: decided, linked, and waiting in the catch-up lane.
-- writes: rerun dead_letter occurrence run_input blocked
-- moves: nothing -> blocked
-- index: chrono_dead_letter_pkey, chrono_job_revision_key
--
-- As a backfill: fence 0, and whoever lets a run in writes its own. Each keeps the payload
-- of its letter where that is not the one of the revision in force, under which it runs.
-- A number says for which of them a queue or a payload was given.
WITH wanted AS MATERIALIZED (
    SELECT w.*, to_timestamp(w.scheduled_ms / 1000.0::float8)::timestamptz(3)
            AS scheduled_for,
        to_timestamp(w.due_ms / 1000.0::float8)::timestamptz(3) AS due_at
    FROM unnest(
        %(runs)s::uuid[], %(reruns)s::uuid[], %(parts)s::smallint[], %(jobs)s::uuid[],
        %(tenants)s::integer[], %(versions)s::integer[], %(revisions)s::integer[],
        %(groups)s::integer[], %(scheduled_for)s::bigint[], %(due_at)s::bigint[],
        %(queues)s::text[], %(keys)s::text[]
    ) AS w (
        run_id, rerun_id, part, job_id, tenant, version, revision, attempt_group,
        scheduled_ms, due_ms, queue, key
    )
), closed AS (
    UPDATE chrono_dead_letter d
    SET closed = 1, closed_at = clock_timestamp(), closed_by = %(by)s::text
    FROM wanted w WHERE d.run_id = w.run_id AND d.part = w.part
), linked AS (
    INSERT INTO chrono_rerun (part, run_id, rerun_id, made_by)
    SELECT part, run_id, rerun_id, %(by)s::text FROM wanted
), ledger AS (
    INSERT INTO chrono_occurrence (
        scheduled_for, job_id, run_id, fence, version, revision, attempt_group, part,
        outcome, kind
    )
    SELECT scheduled_for, job_id, rerun_id, 0, version, revision, attempt_group, part,
        1, 5
    FROM wanted
), own AS MATERIALIZED (
    SELECT w.part, w.rerun_id, w.key, CASE
            WHEN %(own_payload)s::boolean THEN %(payload)s::jsonb
            ELSE coalesce(d.payload, 'null') END AS payload,
        coalesce(v.payload, 'null') AS usual,
        CASE WHEN %(own_queue)s::boolean AND w.queue <> v.queue THEN w.queue END AS queue
    FROM wanted w
    JOIN chrono_dead_letter d ON d.run_id = w.run_id AND d.part = w.part
    JOIN chrono_job_revision v ON v.job_id = w.job_id AND v.revision = w.revision
), inputs AS (
    INSERT INTO chrono_run_input (part, run_id, payload, queue, concurrency_key)
    SELECT part, rerun_id, nullif(payload, usual), queue,
        CASE WHEN payload <> usual THEN key END
    FROM own
    WHERE payload <> usual OR queue IS NOT NULL
)
INSERT INTO chrono_blocked (
    due_at, dispatched_at, run_id, job_id, tag, fence, revision, tenant, part, priority,
    attempt, queue, gate, reason, backfill
)
SELECT due_at, to_timestamp(%(now)s::bigint / 1000.0::float8), rerun_id, job_id,
    %(now)s::bigint, 0, revision, tenant, part, 4, 1, queue, 'catch_up', 31,
    %(redrive)s::uuid
FROM wanted
