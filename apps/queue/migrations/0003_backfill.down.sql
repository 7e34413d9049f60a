DROP INDEX chrono_blocked_backfill;
ALTER TABLE chrono_blocked DROP COLUMN backfill;
