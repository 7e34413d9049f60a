-- Tell a worker up to where timers have buckets, and whether runs were set aside.
-- writes: nothing
-- index: chrono_blocked_gate
SELECT floor(extract(epoch FROM s.horizon) * 1000)::bigint, EXISTS (
    SELECT FROM chrono_blocked
    WHERE gate = 'process_crash' AND reason NOT IN (1, 2, 31)
        AND queue = ANY(%(queues)s::text[])
)
FROM chrono_dispatch_state s WHERE s.id = 1
