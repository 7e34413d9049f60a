-- Tell how many milliseconds the timer that waits longest is past its time.
-- writes: nothing
-- index: chrono_timer's and chrono_timer_far's (part, due_at, ref, kind, version), once
-- for each partition
--
-- Those in the far table count: once nobody makes buckets, timers come due there.
SELECT coalesce(max(
    floor(extract(epoch FROM clock_timestamp() - t.due_at) * 1000)::bigint
), 0)
FROM generate_series(0, 63) AS p (part)
CROSS JOIN LATERAL (
    (
        SELECT due_at FROM chrono_timer
        WHERE part = p.part AND due_at <= clock_timestamp()
        ORDER BY due_at LIMIT 1
    ) UNION ALL (
        SELECT due_at FROM chrono_timer_far
        WHERE part = p.part AND due_at <= clock_timestamp()
        ORDER BY due_at LIMIT 1
    )
) AS t
