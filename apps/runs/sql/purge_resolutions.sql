-- Delete verdicts on runs that are no longer kept, a bounded number a statement.
-- writes: resolution
-- index: chrono_resolution_pkey, since ids begin with their instant
--
-- A run ended before it was resolved, so it is gone before its verdict.
DELETE FROM chrono_resolution WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM chrono_resolution
    WHERE run_id < %(below)s::uuid
        AND resolved_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
    ORDER BY run_id LIMIT %(limit)s::integer FOR UPDATE SKIP LOCKED
))
