-- List the circuits that are not closed, with the runs that probe.
-- writes: nothing
-- index: chrono_target_shut
SELECT tenant, name, state, probes FROM chrono_target WHERE state <> 1
