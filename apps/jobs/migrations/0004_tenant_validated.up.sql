-- Reads and writes go on meanwhile.
ALTER TABLE chrono_job VALIDATE CONSTRAINT chrono_job_tenant;
