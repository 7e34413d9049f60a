-- Tell whether this server only follows another, and takes no writes.
-- writes: nothing
SELECT pg_is_in_recovery()
