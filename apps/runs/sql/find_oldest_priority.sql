-- Find the priority of the run of a queue that has waited longest by its fair tag.
-- writes: nothing
-- index: chrono_ready_order on every slice
SELECT (min(ARRAY[first.tag, p.priority]))[2]::smallint
FROM generate_series(0, 4) AS p (priority)
CROSS JOIN LATERAL (
    SELECT r.tag FROM chrono_ready r
    WHERE r.queue = %(queue)s::text AND r.priority = p.priority
    ORDER BY r.tag LIMIT 1
) AS first
