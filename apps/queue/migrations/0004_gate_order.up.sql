-- Gates that hold runs of many jobs let in the first due, whatever its job. What waits
-- for its own job (a pause, an overlap, catching up) goes by the other index.
CREATE INDEX CONCURRENTLY IF NOT EXISTS chrono_blocked_gate
    ON chrono_blocked (gate, due_at, run_id) WHERE reason NOT IN (1, 2, 31);
