-- Have who fires and who claims look at the gates anew.
-- writes: dispatch_state
UPDATE chrono_dispatch_state SET gates = gates + 1 WHERE id = 1
