-- Give a key back under which nothing was done.
-- writes: once
-- index: chrono_once_pkey
DELETE FROM chrono_once
WHERE owner = %(owner)s::uuid AND part = %(part)s::smallint AND key = %(key)s::text
    AND token = %(token)s::uuid AND done_at IS NULL
