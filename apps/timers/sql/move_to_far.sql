-- Move all rows of a detached bucket to the far table, where load finds them.
-- writes: timer_far
-- moves: timer -> timer_far
WITH moved AS (DELETE FROM {bucket} RETURNING *)
INSERT INTO chrono_timer_far SELECT * FROM moved ON CONFLICT DO NOTHING
