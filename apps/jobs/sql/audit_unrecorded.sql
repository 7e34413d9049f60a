-- Find changes of some jobs that have no audit event of the same transaction (14).
-- writes: nothing
-- index: chrono_audit_event_object, chrono_job_revision_key
--
-- Nothing but a person's change writes these rows, so whoever wrote a row as it is wrote
-- an event, too. A row that was copied, as by a restore, is another transaction's.
WITH written AS (
    SELECT j.id, j.tenant, j.xmin AS written, 'its row' AS what FROM chrono_job j
    WHERE j.id = ANY(%(jobs)s::uuid[])
        AND j.updated_at >= to_timestamp(%(since)s::bigint / 1000.0::float8)
    UNION ALL
    SELECT r.job_id, j.tenant, r.xmin, 'its revision ' || r.revision
    FROM chrono_job_revision r JOIN chrono_job j ON j.id = r.job_id
    WHERE r.job_id = ANY(%(jobs)s::uuid[])
        AND r.created_at >= to_timestamp(%(since)s::bigint / 1000.0::float8)
)
SELECT 'job ' || w.id, w.what || ' was written without an audit event'
FROM written w
WHERE (
    SELECT true FROM chrono_audit_event e
    WHERE e.tenant_id = w.tenant AND e.object_kind = 'job'
        AND e.object_id = w.id::text AND e.xmin = w.written LIMIT 1
) IS NOT TRUE
LIMIT %(limit)s::integer
