-- List leases whose worker is dead or has no row; the caller settles them by token.
-- writes: nothing
SELECT l.run_id, l.part, l.job_id, l.revision, l.attempt, l.token,
    j.deleted_at IS NOT NULL, r.retry_policy,
    r.policy ->> 'delivery' IS NOT DISTINCT FROM 'at_most_once'
FROM chrono_lease l
LEFT JOIN chrono_job j ON j.id = l.job_id
LEFT JOIN chrono_job_revision r ON r.job_id = l.job_id AND r.revision = l.revision
WHERE NOT EXISTS (
    SELECT FROM chrono_worker w WHERE w.id = l.worker AND NOT w.dead
)
ORDER BY l.run_id LIMIT %(limit)s::integer
