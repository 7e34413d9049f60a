-- Find what is wrong with what is on its way: ready runs, leases and waiting runs.
-- writes: nothing
-- index: chrono_occurrence_pkey, chrono_timer_waiting, chrono_attempt_pkey,
-- chrono_death_pkey
--
-- Read whole: these tables hold what is to be done, not what was. An attempt that ended
-- with its process is spared.
WITH live AS MATERIALIZED (
    SELECT run_id, job_id, part, revision, attempt, fence, due_at, dispatched_at,
        NULL::timestamptz AS started_at FROM chrono_ready
    UNION ALL
    SELECT run_id, job_id, part, revision, attempt, fence, due_at, dispatched_at,
        started_at FROM chrono_lease
    UNION ALL
    SELECT ref, job_id, part, revision, attempt, 0, due_at, NULL, NULL
    FROM chrono_timer WHERE kind = 4
    UNION ALL
    SELECT ref, job_id, part, revision, attempt, 0, due_at, NULL, NULL
    FROM chrono_timer_far WHERE kind = 4
    UNION ALL
    SELECT run_id, job_id, part, revision, attempt, fence, due_at, NULL, NULL
    FROM chrono_blocked
)
SELECT w.wrong, 'run ' || l.run_id
FROM (
    SELECT l.*, to_timestamp((
        'x' || substr(replace(l.run_id::text, '-', ''), 1, 12)
    )::bit(48)::bigint / 1000.0::float8)::timestamptz(3) AS scheduled_for FROM live l
) l
JOIN chrono_partition p ON p.id = l.part
LEFT JOIN chrono_job_revision j ON j.job_id = l.job_id AND j.revision = l.revision
LEFT JOIN LATERAL (
    SELECT o.outcome FROM chrono_occurrence o
    WHERE o.part = l.part AND o.job_id = l.job_id
        AND o.scheduled_for = l.scheduled_for AND o.run_id = l.run_id LIMIT 1
) o ON true
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN l.due_at < l.scheduled_for THEN 'due'
        WHEN l.dispatched_at < l.due_at THEN 'ready'
        WHEN l.started_at < l.due_at THEN 'started'
        WHEN l.started_at < l.dispatched_at THEN 'claimed'
        WHEN l.fence > p.fence THEN 'fence'
        WHEN o.outcome IS NULL THEN 'orphan'
        WHEN o.outcome = 2 THEN 'skipped'
        WHEN j.policy ->> 'delivery' = 'at_most_once' AND (
            SELECT true FROM chrono_attempt
            WHERE run_id = l.run_id AND part = l.part LIMIT 1
        ) THEN 'again'
        WHEN l.attempt > (j.retry_policy ->> 'max_attempts')::integer + coalesce((
            SELECT deaths FROM chrono_death WHERE run_id = l.run_id AND part = l.part
        ), 0) THEN 'attempt'
    END AS wrong
) w
WHERE w.wrong IS NOT NULL
    AND (%(jobs)s::uuid[] IS NULL OR l.job_id = ANY(%(jobs)s::uuid[]))
LIMIT %(limit)s::integer
