-- Take a key that nobody has, for an execution that holds its lease.
-- writes: once
-- index: chrono_lease_pkey, chrono_once_pkey
INSERT INTO chrono_once (owner, part, key, token, run_id, expires_at)
SELECT %(owner)s::uuid, l.part, %(key)s::text, l.token, l.run_id,
    clock_timestamp() + %(ttl)s::bigint * interval '1 ms'
FROM chrono_lease l
WHERE l.run_id = %(run)s::uuid AND l.part = %(part)s::smallint
    AND l.token = %(token)s::uuid
ON CONFLICT DO NOTHING
RETURNING token
