-- Settle executions whose lease still holds: final, or again later.
-- writes: lease run attempt dead_letter timer timer_far
-- moves: running -> success | failed | dead | cancelled | unknown | retrying
-- index: chrono_lease_pkey
--
-- All rows of the batch come in (runs, tokens); those that are not a plain success come
-- in a second time with what became of them. Ids that are not returned are leases lost:
-- drop their results. State 0 means again at `due`, with `spent` added to the attempt.
-- What was logged stays with the attempt that failed, else with the run.
-- The run of a cancel over an open claim is in chrono_run already. One that is unknown
-- stays so whoever cancelled it: it may have had its effect.
--
-- Earlier attempts are looked up by an array, never one by one: see fire_if_held.
WITH freed AS MATERIALIZED (
    DELETE FROM chrono_lease
    WHERE run_id = ANY(%(runs)s::uuid[]) AND token = ANY(%(tokens)s::uuid[])
    RETURNING *
), odd AS MATERIALIZED (
    SELECT f.*, d.error, d.result, d.spent, d.log,
        CASE WHEN f.cancel AND d.state NOT IN (1, 6) THEN 4 ELSE d.state END AS state,
        CASE WHEN f.cancel AND d.state NOT IN (1, 6) THEN coalesce(f.cancel_reason, 18)
            ELSE nullif(d.reason, 0) END AS reason,
        greatest(to_timestamp(d.due / 1000.0::float8), date_trunc(
            'milliseconds', clock_timestamp())) AS retry_at,
        to_timestamp((
            'x' || substr(replace(f.run_id::text, '-', ''), 1, 12)
        )::bit(48)::bigint / 1000.0::float8) AS scheduled_for
    FROM freed f JOIN (
        SELECT * FROM unnest(
            %(odd_run)s::uuid[], %(odd_token)s::uuid[], %(odd_state)s::smallint[],
            %(odd_reason)s::smallint[], %(odd_spent)s::smallint[],
            %(odd_due)s::bigint[], %(odd_error)s::text[], %(odd_result)s::jsonb[],
            %(odd_log)s::text[]
        ) AS o (run_id, token, state, reason, spent, due, error, result, log)
    ) d ON d.run_id = f.run_id AND d.token = f.token
), succeeded AS (
    INSERT INTO chrono_run (
        due_at, dispatched_at, started_at, finished_at, id, job_id, worker, fence,
        revision, tenant, part, state, priority, attempt, queue
    )
    SELECT due_at, dispatched_at, started_at, clock_timestamp(), run_id, job_id, worker,
        fence, revision, tenant, part, 1, priority, attempt, queue
    FROM freed WHERE run_id NOT IN (SELECT o FROM unnest(%(odd_run)s::uuid[]) AS o)
    ON CONFLICT DO NOTHING
), ended AS (
    INSERT INTO chrono_run (
        due_at, dispatched_at, started_at, finished_at, id, job_id, worker, fence,
        revision, tenant, part, state, reason, priority, attempt, queue, result, log
    )
    SELECT due_at, dispatched_at, started_at, clock_timestamp(), run_id, job_id, worker,
        fence, revision, tenant, part, state, reason, priority, attempt, queue, result,
        CASE WHEN error IS NULL THEN log END
    FROM odd WHERE state <> 0
    ON CONFLICT DO NOTHING
), failed AS (
    INSERT INTO chrono_attempt (
        started_at, run_id, worker, fence, part, attempt, reason, error, log
    )
    SELECT started_at, run_id, worker, fence, part, attempt, reason, error, log
    FROM odd WHERE error IS NOT NULL
    ON CONFLICT DO NOTHING
), earlier AS MATERIALIZED (
    SELECT run_id, attempt, reason, error, finished_at FROM chrono_attempt
    WHERE run_id = ANY(ARRAY(SELECT run_id FROM odd WHERE state = 3))
), buried AS (
    INSERT INTO chrono_dead_letter (
        run_id, part, tenant, job_id, revision, queue, reason, attempt, payload, errors
    )
    SELECT run_id, part, tenant, job_id, revision, queue, reason, attempt,
        coalesce((
            SELECT i.payload FROM chrono_run_input i
            WHERE i.part = odd.part AND i.run_id = odd.run_id
        ), (
            SELECT j.payload FROM chrono_job_revision j
            WHERE j.job_id = odd.job_id AND j.revision = odd.revision
        )),
        coalesce((
            SELECT jsonb_agg(jsonb_build_object(
                'attempt', a.attempt, 'reason', a.reason, 'error', a.error,
                'finished_at', a.finished_at
            ) ORDER BY a.attempt)
            FROM earlier a WHERE a.run_id = odd.run_id
        ), '[]') || jsonb_build_object(
            'attempt', attempt, 'reason', reason, 'error', error,
            'finished_at', clock_timestamp(), 'log', log
        )
    FROM odd WHERE state = 3
    ON CONFLICT DO NOTHING
), later_near AS (
    INSERT INTO chrono_timer (
        due_at, scheduled_for, ref, job_id, version, revision, part, kind, attempt
    )
    SELECT retry_at, scheduled_for, run_id, job_id, 0, revision, part, 4,
        attempt + spent
    FROM odd
    WHERE state = 0 AND retry_at < to_timestamp(%(horizon)s::bigint / 1000.0::float8)
    ON CONFLICT DO NOTHING
), later_far AS (
    INSERT INTO chrono_timer_far (
        due_at, scheduled_for, ref, job_id, version, revision, part, kind, attempt
    )
    SELECT retry_at, scheduled_for, run_id, job_id, 0, revision, part, 4,
        attempt + spent
    FROM odd
    WHERE state = 0 AND retry_at >= to_timestamp(%(horizon)s::bigint / 1000.0::float8)
    ON CONFLICT DO NOTHING
)
SELECT run_id FROM freed
