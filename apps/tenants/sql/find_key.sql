-- Read what decides whether a key lets in, by the database's clock.
-- writes: nothing
-- index: chrono_api_key_pkey
--
-- Idle (the last column): its last use is a minute old, and this session may write.
SELECT k.digest, k.tenant_id, k.name, k.scopes::text[], k.revoked_at IS NOT NULL,
    coalesce(k.expires_at <= t.now, false),
    coalesce(k.last_used_at < t.now - interval '1 minute', true)
        AND current_setting('transaction_read_only') = 'off'
FROM chrono_api_key k
CROSS JOIN (
    SELECT coalesce(
        to_timestamp(%(now)s::bigint / 1000.0::float8), clock_timestamp()
    ) AS now
) t
WHERE k.id = %(ident)s::text
