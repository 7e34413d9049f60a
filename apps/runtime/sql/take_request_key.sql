-- Take a request's key for this transaction, after whoever has it right now.
-- writes: nothing
SELECT pg_advisory_xact_lock(
    hashtextextended(%(key)s::text, 7283991 + %(tenant)s::integer)
)
