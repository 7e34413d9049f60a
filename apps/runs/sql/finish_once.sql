-- Keep the answer of what was done under a key, if it was not taken over meanwhile.
-- writes: once
-- index: chrono_once_pkey
--
-- A lost lease does not matter: it was done, and whoever comes next is to know.
UPDATE chrono_once SET done_at = clock_timestamp(), result = %(result)s::jsonb,
    expires_at = clock_timestamp() + %(ttl)s::bigint * interval '1 ms'
WHERE owner = %(owner)s::uuid AND part = %(part)s::smallint AND key = %(key)s::text
    AND token = %(token)s::uuid
RETURNING token
