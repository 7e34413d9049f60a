-- A job's tenant exists. Of the hot tables none checks it again: what they hold comes
-- from a job. Old rows are looked at by the next migration, so that this one's lock
-- against writers is held for an instant, and not waited for behind a long edit.
SET LOCAL lock_timeout = '2s';
ALTER TABLE chrono_job
    ADD CONSTRAINT chrono_job_tenant FOREIGN KEY (tenant)
    REFERENCES chrono_tenant (id) NOT VALID;
