-- Count what is due in a stretch of time in each partition; tell what upkeep published.
-- writes: nothing
-- index: chrono_timer (part, due_at, ref, kind, version)
SELECT p.id, p.fence, p.term, p.epoch, p.full_epoch, (
    SELECT count(*) FROM chrono_timer
    WHERE part = p.id AND due_at >= to_timestamp(%(after)s::bigint / 1000.0::float8)
        AND due_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
) + (
    SELECT count(*) FROM chrono_timer_far
    WHERE part = p.id AND due_at >= to_timestamp(%(after)s::bigint / 1000.0::float8)
        AND due_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
), s.slice, s.horizon, s.gates
FROM chrono_partition p CROSS JOIN chrono_dispatch_state s
WHERE p.id = ANY(%(parts)s::smallint[])
