-- Find dead runs of a stretch without an error or without their dead letter (11).
-- writes: nothing
-- index: chrono_run_not_success, chrono_attempt_pkey, chrono_dead_letter_pkey
SELECT 'run ' || r.id, CASE WHEN f.failed
    THEN 'is dead without a dead letter'
    ELSE 'is dead without an attempt that failed' END
FROM chrono_run r
CROSS JOIN LATERAL (
    SELECT (
        SELECT true FROM chrono_attempt WHERE run_id = r.id AND part = r.part LIMIT 1
    ) IS TRUE AS failed, (
        SELECT true FROM chrono_dead_letter
        WHERE run_id = r.id AND part = r.part LIMIT 1
    ) IS TRUE AS buried
) f
WHERE r.state = 3 AND r.id > %(low)s::uuid AND r.id <= %(high)s::uuid
    AND (%(runs)s::uuid[] IS NULL OR r.id = ANY(%(runs)s::uuid[]))
    AND (%(tenant)s::integer IS NULL OR r.tenant = %(tenant)s::integer)
    AND NOT (f.failed AND f.buried)
LIMIT %(limit)s::integer
