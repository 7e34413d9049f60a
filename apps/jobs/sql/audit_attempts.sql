-- Find gaps between attempts, and attempts beyond the policy's number (invariant 6).
-- writes: nothing
-- index: chrono_attempt_pkey
--
-- That no two attempts of a run are in execution is the primary key of chrono_lease.
SELECT 'run ' || a.run_id, 'attempt ' || a.attempt || ' without the one before it'
FROM chrono_attempt a
WHERE a.run_id >= %(since_id)s::uuid AND a.attempt > 1 AND NOT EXISTS (
    SELECT FROM chrono_attempt b
    WHERE b.run_id = a.run_id AND b.part = a.part AND b.attempt = a.attempt - 1
)
UNION ALL
SELECT 'run ' || w.id, 'attempt ' || w.attempt || ' of '
    || (r.retry_policy ->> 'max_attempts')
FROM (
    SELECT id, job_id, revision, attempt FROM chrono_run
    WHERE id >= %(since_id)s::uuid AND attempt > 1
    UNION ALL
    SELECT run_id, job_id, revision, attempt FROM chrono_lease WHERE attempt > 1
) w
JOIN chrono_job_revision r ON r.job_id = w.job_id AND r.revision = w.revision
WHERE w.attempt > (r.retry_policy ->> 'max_attempts')::integer
LIMIT %(limit)s::integer
