-- Publish the slice that new ready rows go to.
-- writes: dispatch_state
UPDATE chrono_dispatch_state SET slice = %(slice)s::smallint WHERE id = 1
