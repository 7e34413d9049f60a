-- Of some runs in execution, list those that may take too long.
-- writes: nothing
-- index: chrono_lease_pkey
--
-- Those of jobs with max_runtime. A stretch by run, from one on, as in watch_ready; and
-- as there a bound in the usual form is compared here.
WITH looked AS MATERIALIZED (
    SELECT run_id, part, job_id, tenant, attempt, started_at FROM chrono_lease
    WHERE (run_id, part) > (%(run)s::uuid, %(part)s::smallint)
    ORDER BY run_id, part LIMIT %(limit)s::integer
), suspect AS (
    SELECT l.run_id, l.job_id, l.tenant, l.part, l.attempt, l.started_at,
        (p.policy -> 'max_runtime')::text AS bound
    FROM looked l CROSS JOIN LATERAL (
        SELECT p.policy FROM chrono_job j
        JOIN chrono_job_revision p ON p.job_id = j.id AND p.revision = j.revision
        WHERE j.id = l.job_id AND NOT j.paused AND j.deleted_at IS NULL OFFSET 0
    ) p
    WHERE p.policy ? 'max_runtime'
        AND CASE WHEN p.policy ->> 'max_runtime' ~ '^[0-9]{1,9}(ms|[smhd])$'
            THEN to_timestamp(%(now)s::bigint / 1000.0::float8) - l.started_at
                > (p.policy ->> 'max_runtime')::interval
            ELSE true END
        AND (
            SELECT true FROM chrono_breach b
            WHERE b.job_id = l.job_id AND b.kind = 2 AND b.run_id = l.run_id LIMIT 1
        ) IS NULL
)
SELECT e.seen, e.run_id, e.part, s.run_id, s.job_id, s.tenant, s.part, s.attempt,
    floor(extract(epoch FROM s.started_at) * 1000)::bigint, s.bound
FROM (
    SELECT run_id, part, count(*) OVER () AS seen FROM looked ORDER BY run_id DESC, part DESC LIMIT 1
) e LEFT JOIN suspect s ON true
