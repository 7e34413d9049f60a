-- What a deleted job has behind such a gate is found without knowing the gate.
CREATE INDEX CONCURRENTLY IF NOT EXISTS chrono_blocked_job
    ON chrono_blocked (part, job_id) WHERE strpos(gate, '/') > 0;
