-- List paused queues by name, of a tenant or of all, from one on.
-- writes: nothing
-- index: chrono_queue_pause_pkey, chrono_blocked_gate
--
-- How many runs are held is counted no further than to a bound, and only where asked.
SELECT p.tenant, p.queue, p.paused_at, p.paused_by, p.note, CASE WHEN %(count)s::boolean
    THEN (SELECT count(*) FROM (
        SELECT FROM chrono_blocked b
        WHERE b.gate = 'queue_paused/' || p.tenant || '/' || p.queue
            AND b.reason NOT IN (1, 2, 31)
        LIMIT 10000
    ) AS held) END
FROM chrono_queue_pause p
WHERE (%(tenant)s::integer IS NULL OR p.tenant = %(tenant)s::integer)
    AND (p.tenant, p.queue)
        > (%(after_tenant)s::integer, %(after_queue)s::text COLLATE "C")
    AND (%(queue)s::text IS NULL OR p.queue = %(queue)s::text COLLATE "C")
ORDER BY p.tenant, p.queue LIMIT %(limit)s::integer
