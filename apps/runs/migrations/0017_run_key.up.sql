-- The concurrency key of a run with a payload of its own, where that fills the key.
SET LOCAL lock_timeout = '2s';
ALTER TABLE chrono_run_input ADD COLUMN concurrency_key text COLLATE "C";
