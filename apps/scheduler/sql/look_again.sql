-- Count what is due in a stretch of time in each partition; tell what upkeep published.
-- writes: nothing
-- index: chrono_timer (part, due_at, ref, kind, version)
--
-- And what is next in each queue and priority, by its fair tag: the first row has it for
-- all of them. One that was cancelled may lie at the head until upkeep takes it out, and
-- is passed over.
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
SELECT p.id, p.fence, p.term, p.epoch, p.full_epoch, (
    SELECT count(*) FROM chrono_timer
    WHERE part = p.id AND due_at >= to_timestamp(%(after)s::bigint / 1000.0::float8)
        AND due_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
) + (
    SELECT count(*) FROM chrono_timer_far
    WHERE part = p.id AND due_at >= to_timestamp(%(after)s::bigint / 1000.0::float8)
        AND due_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
), s.slice, s.horizon, s.gates, CASE WHEN p.id = (%(parts)s::smallint[])[1] THEN (
    SELECT json_agg(json_build_array(queue, priority, tag)) FROM heads
) END
FROM chrono_partition p CROSS JOIN chrono_dispatch_state s
WHERE p.id = ANY(%(parts)s::smallint[])
