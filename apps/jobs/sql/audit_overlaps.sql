-- Find attempts of one run that began before the one before had ended (invariant 7).
-- writes: nothing
-- index: chrono_attempt_pkey
SELECT 'run ' || a.run_id, 'attempt ' || b.attempt || ' began '
    || (a.finished_at - b.started_at) || ' before the end of attempt ' || a.attempt
FROM chrono_attempt a
JOIN (
    SELECT run_id, part, attempt, started_at FROM chrono_attempt
    WHERE run_id >= %(since_id)s::uuid
    UNION ALL
    SELECT run_id, part, attempt, started_at FROM chrono_lease
    UNION ALL
    SELECT id, part, attempt, started_at FROM chrono_run
    WHERE id >= %(since_id)s::uuid AND attempt > 1
) b ON b.run_id = a.run_id AND b.part = a.part AND b.attempt = a.attempt + 1
WHERE a.run_id >= %(since_id)s::uuid AND b.started_at < a.finished_at
LIMIT %(limit)s::integer
