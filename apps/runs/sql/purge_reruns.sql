-- Delete links between runs past every retention, a bounded number a statement.
-- writes: rerun
-- index: chrono_rerun_made
DELETE FROM chrono_rerun WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM chrono_rerun
    WHERE made_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
    ORDER BY made_at LIMIT %(limit)s::integer FOR UPDATE SKIP LOCKED
))
