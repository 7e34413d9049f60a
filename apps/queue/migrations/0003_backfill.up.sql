-- Which backfill a waiting run belongs to, so that the rest of one can be called off.
SET LOCAL lock_timeout = '2s';
ALTER TABLE chrono_blocked ADD COLUMN backfill uuid;
CREATE INDEX chrono_blocked_backfill ON chrono_blocked (backfill)
    WHERE backfill IS NOT NULL;
