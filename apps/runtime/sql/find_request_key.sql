-- Read what was answered under a key.
-- writes: nothing
-- index: chrono_request_key_pkey
SELECT method, path, fingerprint, status, headers::text, answer::text
FROM chrono_request_key
WHERE tenant = %(tenant)s::integer AND key = %(key)s::text
