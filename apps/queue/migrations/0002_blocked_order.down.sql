DROP INDEX chrono_blocked_order;
CREATE INDEX chrono_blocked_gate ON chrono_blocked (gate, due_at);
