ALTER TABLE chrono_lease DROP COLUMN cancel_reason;
