-- Begin and end breaches, each with its event in the same transaction.
-- writes: breach job_event
-- index: chrono_breach_pkey
--
-- One that is open already begins no second time, and one that is not open does not end:
-- so nothing is told twice, whoever else watches. 1 begins, 2 ends, 3 lapses untold.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(
        %(changes)s::smallint[], %(jobs)s::uuid[], %(kinds)s::smallint[],
        %(runs)s::uuid[], %(tenants)s::integer[], %(parts)s::smallint[],
        %(details)s::text[]
    ) AS g (change, job_id, kind, run_id, tenant, part, detail)
), begun AS (
    INSERT INTO chrono_breach (job_id, kind, run_id, tenant, part, since, detail)
    SELECT job_id, kind, run_id, tenant, part,
        to_timestamp(%(now)s::bigint / 1000.0::float8), detail
    FROM given WHERE change = 1
    ON CONFLICT DO NOTHING
    RETURNING job_id, kind, run_id
), ended AS (
    DELETE FROM chrono_breach WHERE (job_id, kind, run_id) IN (
        SELECT job_id, kind, run_id FROM given WHERE change > 1
    )
    RETURNING job_id, kind, run_id
)
INSERT INTO chrono_job_event (at, tenant, job_id, run_id, part, kind, over, detail)
SELECT to_timestamp(%(now)s::bigint / 1000.0::float8), g.tenant, g.job_id,
    nullif(g.run_id, '00000000-0000-0000-0000-000000000000'), g.part, g.kind,
    g.change = 2, g.detail
FROM given g
WHERE g.change = 1 AND (g.job_id, g.kind, g.run_id) IN (SELECT * FROM begun)
    OR g.change = 2 AND (g.job_id, g.kind, g.run_id) IN (SELECT * FROM ended)
ORDER BY g.job_id, g.kind, g.run_id
