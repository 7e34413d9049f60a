-- Hear of runs that became ready; the payload names their queues, or is empty.
-- writes: nothing
LISTEN chrono_ready
