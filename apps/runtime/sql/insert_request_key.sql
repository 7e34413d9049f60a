-- Keep what is answered under a key, for a day.
-- writes: request_key
INSERT INTO chrono_request_key (
    tenant, key, method, path, fingerprint, status, headers, answer
)
VALUES (
    %(tenant)s::integer, %(key)s::text, %(method)s::text, %(path)s::text,
    %(fingerprint)s::bytea, %(status)s::smallint, %(headers)s::json, %(answer)s::json
)
ON CONFLICT DO NOTHING
