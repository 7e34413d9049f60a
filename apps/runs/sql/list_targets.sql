-- List targets that failed or that somebody looked after, from one on.
-- writes: nothing
-- index: chrono_target_pkey
--
-- Of one tenant, or of all. How many runs wait is counted no further than to a bound.
SELECT t.tenant, t.name, t.state, t.failures, t.changed_at, t.probe_at, t.probes, t.let_in,
    t.failure_threshold, t.open_duration_s, t.half_open_probes, t.tokens, t.traffic,
    t.budget_at, t.granted, t.refused, t.ratio, t.min_concurrent, t.changed_by, t.note, (
    SELECT count(*) FROM (
        SELECT FROM chrono_blocked b
        WHERE b.gate = 'circuit_open/' || t.tenant || '/' || t.name
            AND b.reason NOT IN (1, 2, 31)
        LIMIT 10000
    ) AS waiting
)
FROM chrono_target t
WHERE (%(tenant)s::integer IS NULL OR t.tenant = %(tenant)s::integer)
    AND (t.tenant, t.name) > (%(after_tenant)s::integer, %(after_name)s::text COLLATE "C")
    AND (%(state)s::smallint IS NULL OR t.state = %(state)s::smallint)
    AND (%(name)s::text IS NULL OR t.name = %(name)s::text COLLATE "C")
ORDER BY t.tenant, t.name LIMIT %(limit)s::integer
