-- Note when successes of jobs were looked for, and the last one that is known.
-- writes: watched
-- index: chrono_watched_pkey
INSERT INTO chrono_watched AS w (job_id, succeeded_at, looked_at)
SELECT job_id, to_timestamp(nullif(succeeded, 0) / 1000.0::float8),
    to_timestamp(%(now)s::bigint / 1000.0::float8)
FROM unnest(%(jobs)s::uuid[], %(succeeded)s::bigint[]) AS g (job_id, succeeded)
ON CONFLICT (job_id) DO UPDATE SET looked_at = excluded.looked_at,
    succeeded_at = coalesce(excluded.succeeded_at, w.succeeded_at)
