-- List executions of a stretch of runs whose number at one time is bounded (13).
-- writes: nothing
-- index: chrono_run_pkey, chrono_lease_pkey, chrono_attempt_pkey,
-- chrono_job_revision_key, chrono_run_input_pkey
--
-- A job's own bound is asked of runs of its schedule alone, since a person's go beyond
-- it. One that goes on is over, so far, with this snapshot. Earlier attempts of runs
-- that wait for the next one are told once that is there. A quota that was changed
-- lately is left out: behind the old one's gate runs may still have waited.
WITH page AS MATERIALIZED (
    SELECT id AS run_id, part, job_id, revision, attempt, tenant, started_at, finished_at
    FROM chrono_run
    WHERE id > %(low)s::uuid AND id <= %(high)s::uuid
        AND isfinite(started_at) AND isfinite(finished_at)
        AND (%(tenant)s::integer IS NULL OR tenant = %(tenant)s::integer)
    UNION ALL
    SELECT run_id, part, job_id, revision, attempt, tenant, started_at, now()
    FROM chrono_lease
    WHERE run_id > %(low)s::uuid AND run_id <= %(high)s::uuid
        AND (%(tenant)s::integer IS NULL OR tenant = %(tenant)s::integer)
), bounds AS MATERIALIZED (
    SELECT d.job_id, d.revision, v.most, v.key, v.filled, v.most_of_key
    FROM (SELECT DISTINCT job_id, revision FROM page) d
    CROSS JOIN LATERAL (
        SELECT coalesce(
                (policy ->> 'max_concurrent_runs')::integer,
                CASE WHEN overlap_policy <> 'allow_all' THEN 1 END) AS most,
            coalesce(policy ->> 'filled_key', policy ->> 'concurrency_key') AS key,
            policy ? 'filled_key' AS filled,
            coalesce((policy ->> 'concurrency_limit')::integer, 1) AS most_of_key
        FROM chrono_job_revision
        WHERE job_id = d.job_id AND revision = d.revision OFFSET 0
    ) v
), quotas AS MATERIALIZED (
    SELECT t.id AS tenant, t.max_running FROM chrono_tenant t
    WHERE t.max_running IS NOT NULL AND NOT EXISTS (
        SELECT FROM chrono_audit_event e
        WHERE e.tenant_id = t.id AND e.id > %(settled_since)s::uuid
            AND e.action = 'tenant.change'
    )
), bounded AS MATERIALIZED (
    SELECT r.run_id, r.part, r.job_id, r.revision, r.attempt, r.tenant, r.started_at,
        r.finished_at, coalesce(i.concurrency_key, b.key) AS key, b.most_of_key,
        q.max_running AS most_of_tenant,
        CASE WHEN get_byte(uuid_send(r.run_id), 15) & 1 = 0 THEN b.most END AS most
    FROM page r JOIN bounds b ON b.job_id = r.job_id AND b.revision = r.revision
    LEFT JOIN quotas q ON q.tenant = r.tenant
    LEFT JOIN chrono_run_input i ON b.filled AND i.part = r.part AND i.run_id = r.run_id
)
SELECT e.run_id, e.job_id, e.revision, e.tenant, e.most, e.key, e.most_of_key,
    e.most_of_tenant,
    round(extract(epoch FROM e.started_at) * 1000)::bigint,
    round(extract(epoch FROM e.finished_at) * 1000)::bigint
FROM (
    SELECT * FROM bounded
    UNION ALL
    SELECT b.run_id, b.part, b.job_id, b.revision, a.attempt, b.tenant, a.started_at,
        a.finished_at, b.key, b.most_of_key, b.most_of_tenant, b.most
    FROM bounded b CROSS JOIN LATERAL (
        SELECT attempt, started_at, finished_at FROM chrono_attempt
        WHERE run_id = b.run_id AND part = b.part AND attempt < b.attempt
            AND b.attempt > 1 OFFSET 0
    ) a
) e
WHERE e.most IS NOT NULL OR e.key IS NOT NULL OR e.most_of_tenant IS NOT NULL
