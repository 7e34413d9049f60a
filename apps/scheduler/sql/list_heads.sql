-- List what is next in each queue and priority, by its fair tag.
-- writes: nothing
-- index: chrono_ready_order on every slice
--
-- One that was cancelled may lie at the head until upkeep takes it out, and is passed
-- over. It waits for a slice that is being emptied, so no look may depend on it.
WITH RECURSIVE queues AS (
    (
        SELECT queue, 1 AS depth FROM chrono_ready WHERE queue > ''
        ORDER BY queue LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT y.queue FROM chrono_ready y WHERE y.queue > q.queue
        ORDER BY y.queue LIMIT 1
    ), q.depth + 1
    FROM queues q WHERE q.queue IS NOT NULL AND q.depth < 200
), heads AS (
    SELECT q.queue, p.priority, r.tag
    FROM queues q
    CROSS JOIN generate_series(0, 4) AS p (priority)
    CROSS JOIN LATERAL (
        SELECT y.tag FROM chrono_ready y
        WHERE y.queue = q.queue AND y.priority = p.priority
            AND NOT EXISTS (
                SELECT FROM chrono_withdrawn w
                WHERE w.run_id = y.run_id AND w.part = y.part
            )
        ORDER BY y.tag LIMIT 1
    ) AS r
    WHERE q.queue IS NOT NULL
)
SELECT queue, priority, tag FROM heads
