-- Publish a later horizon: every hour before it has its bucket.
-- writes: dispatch_state
UPDATE chrono_dispatch_state
SET horizon = to_timestamp(%(horizon)s::bigint / 1000.0::float8)
WHERE id = 1 AND horizon < to_timestamp(%(horizon)s::bigint / 1000.0::float8)
