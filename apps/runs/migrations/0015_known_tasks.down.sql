SET LOCAL lock_timeout = '2s';
ALTER TABLE chrono_worker DROP COLUMN tasks;
