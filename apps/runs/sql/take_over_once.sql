-- Take a key from an execution that is known to be dead, or that is kept no longer.
-- writes: once
-- index: chrono_lease_pkey, chrono_once_pkey
--
-- Only from the very holder that was looked at: a lease that is gone never comes back.
UPDATE chrono_once o SET token = l.token, run_id = l.run_id, done_at = NULL,
    result = NULL, begun_at = clock_timestamp(),
    expires_at = clock_timestamp() + %(ttl)s::bigint * interval '1 ms'
FROM chrono_lease l
WHERE o.owner = %(owner)s::uuid AND o.part = %(part)s::smallint AND o.key = %(key)s::text
    AND o.token = %(holder)s::uuid
    AND (o.done_at IS NULL OR o.expires_at <= clock_timestamp())
    AND l.run_id = %(run)s::uuid AND l.part = %(part)s::smallint
    AND l.token = %(token)s::uuid
RETURNING o.token
