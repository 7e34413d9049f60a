-- End the pause of a queue, if it has one.
-- writes: queue_pause
-- index: chrono_queue_pause_pkey
DELETE FROM chrono_queue_pause
WHERE tenant = %(tenant)s::integer AND queue = %(queue)s::text COLLATE "C"
RETURNING queue
