-- Find keys made or ended without an audit event of the same transaction (14).
-- writes: nothing
-- index: chrono_audit_event_object
--
-- The use of a key writes its row, too: only keys that were never used can be asked.
SELECT 'key ' || k.id, 'was written without an audit event'
FROM chrono_api_key k
WHERE k.last_used_at IS NULL AND greatest(k.created_at, k.revoked_at)
        >= to_timestamp(%(since)s::bigint / 1000.0::float8)
    AND (%(tenant)s::integer IS NULL OR k.tenant_id = %(tenant)s::integer)
    AND (
        SELECT true FROM chrono_audit_event e
        WHERE e.tenant_id = k.tenant_id AND e.object_kind = 'key'
            AND e.object_id = k.id AND e.xmin = k.xmin LIMIT 1
    ) IS NOT TRUE
LIMIT %(limit)s::integer
