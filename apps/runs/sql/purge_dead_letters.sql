-- Delete what is past its retention, a bounded number a statement.
-- writes: dead_letter
DELETE FROM chrono_dead_letter WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM chrono_dead_letter
    WHERE died_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
    ORDER BY died_at LIMIT %(limit)s::integer FOR UPDATE SKIP LOCKED
))
