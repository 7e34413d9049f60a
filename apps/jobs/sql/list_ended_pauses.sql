-- List jobs whose pause is over, each with the instant at which it was to end.
-- writes: nothing
-- index: chrono_job_resume
SELECT id, floor(extract(epoch FROM paused_until) * 1000)::bigint FROM chrono_job
WHERE paused AND paused_until IS NOT NULL AND deleted_at IS NULL
    AND paused_until <= coalesce(
        to_timestamp(%(now)s::bigint / 1000.0::float8), clock_timestamp())
ORDER BY paused_until LIMIT %(limit)s::integer
