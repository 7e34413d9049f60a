-- Count a tenant's planned fires of one minute, up to a bound.
-- writes: nothing
-- index: chrono_timer (part, due_at, ref, kind, version), once for each partition
SELECT count(*) FROM (
    SELECT 1 FROM generate_series(0, 63) AS p (part)
    CROSS JOIN LATERAL (
        SELECT job_id FROM chrono_timer
        WHERE part = p.part
            AND due_at >= to_timestamp(%(start)s::bigint / 1000.0::float8)
            AND due_at < to_timestamp(%(end)s::bigint / 1000.0::float8)
        UNION ALL
        SELECT job_id FROM chrono_timer_far
        WHERE part = p.part
            AND due_at >= to_timestamp(%(start)s::bigint / 1000.0::float8)
            AND due_at < to_timestamp(%(end)s::bigint / 1000.0::float8)
    ) AS t
    JOIN chrono_job j ON j.id = t.job_id AND j.tenant = %(tenant)s::integer
    LIMIT %(most)s::integer
) AS planned
