ALTER TABLE chrono_job DROP CONSTRAINT chrono_job_tenant;
