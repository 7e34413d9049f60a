-- Pause a queue for the runs of a tenant, unless it is.
-- writes: queue_pause
-- index: chrono_queue_pause_pkey
INSERT INTO chrono_queue_pause (tenant, queue, paused_by, note)
VALUES (
    %(tenant)s::integer, %(queue)s::text, %(paused_by)s::text, %(note)s::text
)
ON CONFLICT DO NOTHING
RETURNING queue
