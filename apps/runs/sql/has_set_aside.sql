-- Tell whether a run of these queues was set aside and waits.
-- writes: nothing
-- index: chrono_blocked_gate
SELECT EXISTS (
    SELECT FROM chrono_blocked
    WHERE gate = 'process_crash' AND reason NOT IN (1, 2, 31)
        AND queue = ANY(%(queues)s::text[])
)
