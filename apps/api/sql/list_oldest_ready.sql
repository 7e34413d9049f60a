-- Tell for each queue how many milliseconds its first ready run has waited.
-- writes: nothing
-- index: chrono_ready_order, jumping from queue to queue
--
-- First by (priority, tag), as claims take them, for each priority: the tag is time
-- plus a fair share, so the first is the oldest or close to it.
WITH RECURSIVE queues AS (
    (SELECT queue FROM chrono_ready ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT y.queue FROM chrono_ready y WHERE y.queue > q.queue
        ORDER BY y.queue LIMIT 1
    )
    FROM queues q WHERE q.queue IS NOT NULL
)
SELECT q.queue,
    max(floor(extract(epoch FROM clock_timestamp() - r.dispatched_at) * 1000)::bigint)
FROM queues q
CROSS JOIN generate_series(0, 4) AS p (priority)
CROSS JOIN LATERAL (
    SELECT dispatched_at FROM chrono_ready y
    WHERE y.queue = q.queue AND y.priority = p.priority
        AND NOT EXISTS (
            SELECT FROM chrono_withdrawn w
            WHERE w.run_id = y.run_id AND w.part = y.part
        )
    ORDER BY y.tag LIMIT 1
) AS r
WHERE q.queue IS NOT NULL
GROUP BY q.queue ORDER BY q.queue LIMIT 100
