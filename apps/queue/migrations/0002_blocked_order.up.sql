-- Waiting runs are let in gate by gate and job by job, a job's first one first. Nothing
-- has written the table before.
SET LOCAL lock_timeout = '2s';
DROP INDEX chrono_blocked_gate;
CREATE INDEX chrono_blocked_order ON chrono_blocked (gate, part, job_id, due_at);
