-- Write down that a key was used, unless another session does so now or just did.
-- writes: api_key
-- index: chrono_api_key_pkey
--
-- Callers of one key at once would wait in line for its row: all but one skip it.
WITH t AS MATERIALIZED (
    SELECT coalesce(
        to_timestamp(%(now)s::bigint / 1000.0::float8), clock_timestamp()
    ) AS now
)
UPDATE chrono_api_key SET last_used_at = (SELECT now FROM t)
WHERE id = (
    SELECT id FROM chrono_api_key
    WHERE id = %(ident)s::text
        AND coalesce(last_used_at < (SELECT now FROM t) - interval '1 minute', true)
    FOR NO KEY UPDATE SKIP LOCKED
)
