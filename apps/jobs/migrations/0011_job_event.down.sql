SET LOCAL lock_timeout = '2s';
DROP TABLE chrono_watched;
DROP TABLE chrono_breach;
DROP TABLE chrono_job_event;
