-- Forget deaths that are long past, a bounded number a statement.
-- writes: death
DELETE FROM chrono_death WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM chrono_death
    WHERE died_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
    LIMIT %(limit)s::integer FOR UPDATE SKIP LOCKED
))
