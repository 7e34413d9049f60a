ALTER TABLE chrono_timer DROP COLUMN remaining;
ALTER TABLE chrono_timer_far DROP COLUMN remaining;
