-- Tell what upkeep published: the current slice and the far horizon.
-- writes: nothing
SELECT slice, horizon FROM chrono_dispatch_state WHERE id = 1
