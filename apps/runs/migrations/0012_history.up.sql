-- What a handler logged last, and since when a running run is told to stop.
SET LOCAL lock_timeout = '2s';
ALTER TABLE chrono_lease ADD COLUMN cancel_at timestamptz;
ALTER TABLE chrono_attempt ADD COLUMN log text;
ALTER TABLE chrono_attempt_kept ADD COLUMN log text;
ALTER TABLE chrono_run ADD COLUMN log text;
ALTER TABLE chrono_run_kept ADD COLUMN log text;
