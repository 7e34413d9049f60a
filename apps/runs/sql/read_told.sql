-- Tell since when a run in execution is told to stop, and the time now.
-- writes: nothing
-- index: chrono_lease_pkey
SELECT floor(extract(epoch FROM cancel_at) * 1000)::bigint,
    floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
FROM chrono_lease
WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint AND cancel
