-- Take the lock of gates that count together until the transaction ends, if it is free.
-- writes: nothing
SELECT pg_try_advisory_xact_lock(%(class)s::integer, hashtext(%(shared)s::text))
