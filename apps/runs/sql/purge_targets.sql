-- Delete targets whose circuit is closed and of which nothing was told for long.
-- writes: target
-- index: chrono_target_pkey
DELETE FROM chrono_target WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM chrono_target
    WHERE state = 1
        AND seen_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
    ORDER BY tenant, name LIMIT %(limit)s::integer
    FOR UPDATE SKIP LOCKED
))
