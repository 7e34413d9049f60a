-- Delete what is past its retention, a bounded number a statement.
-- writes: run_kept
DELETE FROM chrono_run_kept WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM chrono_run_kept
    WHERE finished_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
    ORDER BY finished_at LIMIT %(limit)s::integer FOR UPDATE SKIP LOCKED
))
