-- Tell whether a run of these queues was set aside and waits.
-- writes: nothing
-- index: chrono_blocked_order
SELECT EXISTS (
    SELECT FROM chrono_blocked
    WHERE gate = 'process_crash' AND queue = ANY(%(queues)s::text[])
)
