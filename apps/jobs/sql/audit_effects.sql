-- Find runs of a stretch with ends or begins too many, or no cause to be unknown.
-- writes: nothing
-- index: chrono_attempt_pkey, chrono_run_pkey, chrono_run_not_success,
-- chrono_job_revision_key
--
-- Invariants 9, 11 and 12. A success writes no attempt, a failure does: one with the
-- number of the success, or a later one, was accepted beside it.
SELECT 'accepted', 'run ' || r.id, 'succeeded with attempt ' || r.attempt
    || ', and attempt ' || a.attempt || ' failed'
FROM chrono_attempt a CROSS JOIN LATERAL (
    SELECT id, attempt, tenant FROM chrono_run
    WHERE id = a.run_id AND part = a.part AND state = 1 AND attempt <= a.attempt
    OFFSET 0
) r
WHERE a.run_id > %(low)s::uuid AND a.run_id <= %(high)s::uuid
    AND (%(runs)s::uuid[] IS NULL OR a.run_id = ANY(%(runs)s::uuid[]))
    AND (%(tenant)s::integer IS NULL OR r.tenant = %(tenant)s::integer)
UNION ALL
SELECT 'begun', 'run ' || r.id, 'may be begun once, and ended with attempt ' || r.attempt
FROM chrono_run r JOIN chrono_job_revision v
    ON v.job_id = r.job_id AND v.revision = r.revision
WHERE r.id > %(low)s::uuid AND r.id <= %(high)s::uuid AND r.attempt > 1
    AND v.policy ->> 'delivery' = 'at_most_once'
    AND (%(runs)s::uuid[] IS NULL OR r.id = ANY(%(runs)s::uuid[]))
    AND (%(tenant)s::integer IS NULL OR r.tenant = %(tenant)s::integer)
UNION ALL
SELECT 'unknown', 'run ' || r.id, CASE
    WHEN v.policy ->> 'delivery' IS DISTINCT FROM 'at_most_once'
        THEN 'is unknown, and could have been begun again'
    ELSE 'is unknown without an error' END
FROM chrono_run r LEFT JOIN chrono_job_revision v
    ON v.job_id = r.job_id AND v.revision = r.revision
WHERE r.state = 6 AND r.id > %(low)s::uuid AND r.id <= %(high)s::uuid
    AND (%(runs)s::uuid[] IS NULL OR r.id = ANY(%(runs)s::uuid[]))
    AND (%(tenant)s::integer IS NULL OR r.tenant = %(tenant)s::integer)
    AND (v.policy ->> 'delivery' IS DISTINCT FROM 'at_most_once' OR (
        SELECT true FROM chrono_attempt
        WHERE run_id = r.id AND part = r.part LIMIT 1
    ) IS NOT TRUE)
LIMIT %(limit)s::integer
