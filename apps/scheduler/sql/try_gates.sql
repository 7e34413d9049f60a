-- Take the locks of gates until the transaction ends; list those that were free.
-- writes: nothing
SELECT shared FROM unnest(%(shared)s::text[]) AS g (shared)
WHERE pg_try_advisory_xact_lock(%(class)s::integer, hashtext(shared))
