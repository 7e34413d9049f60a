-- Take the lock of a gate until the transaction ends, if nobody has it.
-- writes: nothing
SELECT pg_try_advisory_xact_lock(%(class)s::integer, hashtext(%(gate)s::text))
