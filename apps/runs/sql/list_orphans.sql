-- List leases whose worker is dead or has no row; the caller settles them by token.
-- writes: nothing
WITH orphan AS MATERIALIZED (
    SELECT run_id, part, job_id, revision, attempt, token, worker, transactional
    FROM chrono_lease
    WHERE worker NOT IN (SELECT id FROM chrono_worker WHERE NOT dead AND NOT swept)
    LIMIT %(limit)s::integer
)
SELECT l.run_id, l.part, l.job_id, l.revision, l.attempt, l.token,
    j.deleted_at IS NOT NULL, r.retry_policy,
    coalesce(w.crashed, false), coalesce(w.alone, false), coalesce(d.deaths, 0),
    r.policy ->> 'delivery' IS NOT DISTINCT FROM 'at_most_once', l.transactional
FROM orphan l
LEFT JOIN chrono_job j ON j.id = l.job_id
LEFT JOIN chrono_job_revision r ON r.job_id = l.job_id AND r.revision = l.revision
LEFT JOIN chrono_worker w ON w.id = l.worker
LEFT JOIN chrono_death d ON d.run_id = l.run_id AND d.part = l.part
