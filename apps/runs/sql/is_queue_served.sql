-- Tell whether a living worker asks for runs of a queue.
-- writes: nothing
SELECT EXISTS (
    SELECT FROM chrono_worker
    WHERE NOT dead AND NOT swept AND NOT alone AND stopped_at IS NULL AND %(queue)s::text = ANY(queues)
        AND beat_at > clock_timestamp() - make_interval(
            secs => %(ttl)s::bigint / 1000.0::float8)
)
