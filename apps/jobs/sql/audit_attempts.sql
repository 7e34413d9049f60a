-- Find gaps and overlaps of attempts in a stretch of runs (6 and 7).
-- writes: nothing
-- index: chrono_attempt_pkey, chrono_lease_pkey, chrono_run_pkey
--
-- That no two attempts of a run are in execution is the primary key of chrono_lease. An
-- attempt is in order if it ended after it began, and before the next one began: then
-- all of a run are.
WITH page AS MATERIALIZED (
    SELECT a.run_id, a.part, a.attempt, a.started_at, a.finished_at
    FROM chrono_attempt a
    WHERE a.run_id > %(low)s::uuid AND a.run_id <= %(high)s::uuid
        AND (%(runs)s::uuid[] IS NULL OR a.run_id = ANY(%(runs)s::uuid[]))
), later AS MATERIALIZED (
    SELECT run_id, part, attempt FROM page WHERE attempt > 1
    UNION
    SELECT id, part, attempt FROM chrono_run
    WHERE id > %(low)s::uuid AND id <= %(high)s::uuid AND attempt > 1
        AND (%(runs)s::uuid[] IS NULL OR id = ANY(%(runs)s::uuid[]))
    UNION
    SELECT run_id, part, attempt FROM chrono_lease
    WHERE run_id > %(low)s::uuid AND run_id <= %(high)s::uuid AND attempt > 1
        AND (%(runs)s::uuid[] IS NULL OR run_id = ANY(%(runs)s::uuid[]))
)
SELECT 'gap', 'run ' || a.run_id, 'attempt ' || a.attempt || ' without the one before'
FROM later a
WHERE (
    SELECT true FROM chrono_attempt b
    WHERE b.run_id = a.run_id AND b.part = a.part AND b.attempt = a.attempt - 1 LIMIT 1
) IS NOT TRUE
UNION ALL
SELECT 'beyond', 'run ' || a.run_id, 'attempt ' || a.attempt
    || ' failed, and it ended with attempt ' || r.attempt
FROM page a CROSS JOIN LATERAL (
    SELECT attempt FROM chrono_run
    WHERE id = a.run_id AND part = a.part AND state <> 1 AND attempt < a.attempt
    OFFSET 0
) r
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
UNION ALL
SELECT 'backwards', 'run ' || run_id, 'attempt ' || attempt || ' ended '
    || (started_at - finished_at) || ' before it began'
FROM page WHERE finished_at < started_at
LIMIT %(limit)s::integer
