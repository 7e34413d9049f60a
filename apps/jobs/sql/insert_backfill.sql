-- Write a backfill and its runs: decided, and waiting in the catch-up lane.
-- writes: backfill occurrence blocked
-- moves: nothing -> blocked
-- index: chrono_occurrence_pkey
--
-- Fence 0: not fired by a leader, but decided under the lock of the job's row; whoever
-- lets a run in writes its own. Millisecond by millisecond the runs keep their order.
WITH backfill AS (
    INSERT INTO chrono_backfill (
        id, tenant, job_id, part, revision, from_at, to_at, runs, created_at, created_by
    )
    SELECT %(backfill)s::uuid, %(tenant)s::integer, %(job)s::uuid, %(part)s::smallint,
        %(revision)s::integer, to_timestamp(%(start)s::bigint / 1000.0::float8),
        to_timestamp(%(end)s::bigint / 1000.0::float8), cardinality(%(runs)s::uuid[]),
        to_timestamp(%(now)s::bigint / 1000.0::float8), %(by)s::text
), wanted AS MATERIALIZED (
    SELECT to_timestamp(d.scheduled_for / 1000.0::float8)::timestamptz(3)
            AS scheduled_for,
        to_timestamp(d.due_at / 1000.0::float8)::timestamptz(3) AS due_at, d.run_id,
        d.attempt_group
    FROM unnest(
        %(scheduled_for)s::bigint[], %(due_at)s::bigint[], %(runs)s::uuid[],
        %(groups)s::integer[]
    ) AS d (scheduled_for, due_at, run_id, attempt_group)
), ledger AS (
    INSERT INTO chrono_occurrence (
        scheduled_for, job_id, run_id, fence, version, revision, attempt_group, part,
        outcome, kind
    )
    SELECT scheduled_for, %(job)s::uuid, run_id, 0, %(version)s::integer,
        %(revision)s::integer, attempt_group, %(part)s::smallint, 1, 5
    FROM wanted
    ON CONFLICT DO NOTHING
    RETURNING run_id
)
INSERT INTO chrono_blocked (
    due_at, dispatched_at, run_id, job_id, tag, fence, revision, tenant, part, priority,
    attempt, queue, gate, reason, backfill
)
SELECT due_at, to_timestamp(%(now)s::bigint / 1000.0::float8), run_id, %(job)s::uuid,
    %(now)s::bigint, 0, %(revision)s::integer, %(tenant)s::integer,
    %(part)s::smallint, 4, 1, %(queue)s::text, 'catch_up', 31, %(backfill)s::uuid
FROM wanted WHERE run_id IN (SELECT run_id FROM ledger)
