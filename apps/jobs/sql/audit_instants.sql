-- Find instants in a wrong order, never early above all, or infinite (10, 15).
-- writes: nothing
--
-- The first 48 bits of a run's id are the milliseconds of its scheduled instant.
WITH seen AS (
    SELECT id, due_at, dispatched_at, started_at, finished_at FROM chrono_run
    WHERE id >= %(since_id)s::uuid
    UNION ALL
    SELECT run_id, due_at, dispatched_at, started_at, NULL FROM chrono_lease
    UNION ALL
    SELECT run_id, due_at, dispatched_at, NULL, NULL FROM chrono_ready
    UNION ALL
    SELECT run_id, NULL, NULL, started_at, finished_at FROM chrono_attempt
    WHERE run_id >= %(since_id)s::uuid
), judged AS (
    SELECT 'run ' || id AS subject, CASE
        WHEN NOT (isfinite(due_at) AND isfinite(dispatched_at)
            AND isfinite(started_at) AND isfinite(finished_at)) THEN 'is infinite'
        WHEN due_at < to_timestamp((
            'x' || substr(replace(id::text, '-', ''), 1, 12)
        )::bit(48)::bigint / 1000.0::float8) THEN 'was due before its instant'
        WHEN dispatched_at < due_at THEN 'was ready before it was due'
        WHEN started_at < due_at THEN 'was started before it was due'
        WHEN started_at < dispatched_at THEN 'was started before it was ready'
        WHEN finished_at < started_at THEN 'ended before it was started'
    END AS detail
    FROM seen
    UNION ALL
    SELECT 'timer of job ' || job_id, 'is due before its instant'
    FROM (SELECT * FROM chrono_timer UNION ALL SELECT * FROM chrono_timer_far) t
    WHERE due_at < scheduled_for
    UNION ALL
    SELECT 'occurrence of job ' || job_id, 'was fired before its instant'
    FROM chrono_occurrence
    WHERE scheduled_for >= to_timestamp(%(since)s::bigint / 1000.0::float8)
        AND outcome = 1 AND decided_at < scheduled_for
)
SELECT subject, detail FROM judged WHERE detail IS NOT NULL
LIMIT %(limit)s::integer
