-- List living workers whose last beat is older than a lease lasts.
-- writes: nothing
SELECT id FROM chrono_worker
WHERE NOT dead AND beat_at < clock_timestamp() - %(ttl)s::bigint * interval '1 ms'
