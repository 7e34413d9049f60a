SET LOCAL lock_timeout = '2s';
DROP TRIGGER chrono_job_removed ON chrono_job;
DROP TRIGGER chrono_job_updated ON chrono_job;
DROP TRIGGER chrono_job_inserted ON chrono_job;
DROP FUNCTION chrono_count_jobs();
DROP TABLE chrono_job_count;
