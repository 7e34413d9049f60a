-- Find failed attempts of a stretch of runs that have a gap or overlap (6 and 7).
-- writes: nothing
-- index: chrono_attempt_pkey, chrono_lease_pkey, chrono_run_pkey
--
-- That no two attempts of a run are in execution is the primary key of chrono_lease.
WITH page AS MATERIALIZED (
    SELECT a.run_id, a.part, a.attempt, a.started_at, a.finished_at
    FROM chrono_attempt a
    WHERE a.run_id > %(low)s::uuid AND a.run_id <= %(high)s::uuid
        AND (%(runs)s::uuid[] IS NULL OR a.run_id = ANY(%(runs)s::uuid[]))
)
SELECT 'gap', 'run ' || a.run_id, 'attempt ' || a.attempt || ' without the one before'
FROM page a
WHERE a.attempt > 1 AND (
    SELECT true FROM chrono_attempt b
    WHERE b.run_id = a.run_id AND b.part = a.part AND b.attempt = a.attempt - 1 LIMIT 1
) IS NOT TRUE
UNION ALL
SELECT 'overlap', 'run ' || a.run_id, 'attempt ' || a.attempt + 1 || ' began '
    || (a.finished_at - b.started_at) || ' before the end of attempt ' || a.attempt
FROM page a CROSS JOIN LATERAL (
    SELECT started_at FROM chrono_attempt
    WHERE run_id = a.run_id AND part = a.part AND attempt = a.attempt + 1
    UNION ALL
    SELECT started_at FROM chrono_lease
    WHERE run_id = a.run_id AND part = a.part AND attempt = a.attempt + 1
    UNION ALL
    SELECT started_at FROM chrono_run
    WHERE id = a.run_id AND part = a.part AND attempt = a.attempt + 1
    OFFSET 0
) b
WHERE b.started_at < a.finished_at
LIMIT %(limit)s::integer
