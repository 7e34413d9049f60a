SET LOCAL lock_timeout = '2s';
ALTER TABLE chrono_run_input DROP COLUMN concurrency_key;
