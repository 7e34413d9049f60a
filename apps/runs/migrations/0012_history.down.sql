SET LOCAL lock_timeout = '2s';
ALTER TABLE chrono_run_kept DROP COLUMN log;
ALTER TABLE chrono_run DROP COLUMN log;
ALTER TABLE chrono_attempt_kept DROP COLUMN log;
ALTER TABLE chrono_attempt DROP COLUMN log;
ALTER TABLE chrono_lease DROP COLUMN cancel_at;
