-- Tell whether others were run again since an instant, as runs of a stretch of ids.
-- writes: nothing
-- index: chrono_rerun_made
SELECT EXISTS (
    SELECT FROM chrono_rerun
    WHERE made_at >= to_timestamp(%(since)s::bigint / 1000.0::float8)
        AND rerun_id >= %(low)s::uuid AND rerun_id < %(high)s::uuid
)
