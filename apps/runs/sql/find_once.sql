-- Read who has a key: done with which answer, or held by whom, and is that one alive.
-- writes: nothing
-- index: chrono_lease_pkey, chrono_once_pkey, chrono_worker_pkey
--
-- One row whatever there is: its first column says whether the asking lease holds.
SELECT l.token IS NOT NULL, o.token, o.done_at IS NOT NULL, o.result::text,
    o.expires_at <= clock_timestamp(), EXISTS (
        SELECT FROM chrono_lease h JOIN chrono_worker w ON w.id = h.worker
        WHERE h.run_id = o.run_id AND h.part = o.part AND h.token = o.token
            AND NOT w.dead
    )
FROM (SELECT 1) one
LEFT JOIN chrono_lease l ON l.run_id = %(run)s::uuid AND l.part = %(part)s::smallint
    AND l.token = %(token)s::uuid
LEFT JOIN chrono_once o ON o.owner = %(owner)s::uuid AND o.part = %(part)s::smallint
    AND o.key = %(key)s::text
