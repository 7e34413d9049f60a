-- Tell whether a backfill made since an instant reaches into a stretch of time.
-- writes: nothing
-- index: chrono_backfill_created
SELECT EXISTS (
    SELECT FROM chrono_backfill
    WHERE created_at >= to_timestamp(%(since)s::bigint / 1000.0::float8)
        AND from_at < to_timestamp(%(end)s::bigint / 1000.0::float8)
        AND to_at > to_timestamp(%(start)s::bigint / 1000.0::float8)
)
