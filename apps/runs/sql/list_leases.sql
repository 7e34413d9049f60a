-- List what a worker holds: after a claim whose answer was lost, and once a minute.
-- writes: nothing
SELECT run_id, part, job_id, revision, tenant, attempt, fence, token, (
    SELECT j.deleted_at IS NOT NULL FROM chrono_job j WHERE j.id = l.job_id
), (SELECT gates FROM chrono_dispatch_state WHERE id = 1)
FROM chrono_lease l WHERE worker = %(worker)s::uuid
