-- Note that a worker process ended by itself, all its leases settled or handed back.
-- writes: worker
UPDATE chrono_worker SET stopped_at = clock_timestamp(), dead = true, swept = false
WHERE id = %(worker)s::uuid
