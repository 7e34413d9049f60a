-- List leases whose worker is dead or has no row; the caller settles them by token.
-- writes: nothing
WITH orphan AS MATERIALIZED (
    SELECT run_id, part, job_id, revision, attempt, token FROM chrono_lease
    WHERE worker NOT IN (SELECT id FROM chrono_worker WHERE NOT dead AND NOT swept)
    LIMIT %(limit)s::integer
)
SELECT l.run_id, l.part, l.job_id, l.revision, l.attempt, l.token,
    j.deleted_at IS NOT NULL, r.retry_policy,
    r.policy ->> 'delivery' IS NOT DISTINCT FROM 'at_most_once'
FROM orphan l
LEFT JOIN chrono_job j ON j.id = l.job_id
LEFT JOIN chrono_job_revision r ON r.job_id = l.job_id AND r.revision = l.revision
