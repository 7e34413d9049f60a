-- Forget what was done longer ago than it is kept, a bounded number a statement.
-- writes: once
-- index: chrono_once_expires
--
-- Of what was never done somebody may be at it still: it has another week.
DELETE FROM chrono_once WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM chrono_once
    WHERE expires_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
        AND (done_at IS NOT NULL OR expires_at
            < to_timestamp(%(before)s::bigint / 1000.0::float8) - interval '7 days')
    ORDER BY expires_at LIMIT %(limit)s::integer FOR UPDATE SKIP LOCKED
))
