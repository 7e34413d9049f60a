-- List the workers that are there, each with the age of its last beat.
-- writes: nothing
SELECT id, queues, concurrency,
    floor(extract(epoch FROM clock_timestamp() - beat_at) * 1000)::bigint
FROM chrono_worker
WHERE NOT dead AND NOT swept AND NOT alone AND stopped_at IS NULL
ORDER BY beat_at DESC LIMIT 200
