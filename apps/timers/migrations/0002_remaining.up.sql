-- A schedule may have a number of runs: how many are left rides in its timer, since a
-- fire writes no job. Beside old code: nullable, and a bucket made meanwhile copies it.
SET LOCAL lock_timeout = '2s';
ALTER TABLE chrono_timer ADD COLUMN remaining integer;
ALTER TABLE chrono_timer_far ADD COLUMN remaining integer;
COMMENT ON COLUMN chrono_timer.remaining IS
    'how many runs of the schedule there are left, this one included; empty for any';
