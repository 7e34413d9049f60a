-- Forget slots of settled runs; fire takes no notice of them any more.
-- writes: slot
-- index: chrono_run_pkey
--
-- Runs are looked up by an array, never one by one: see fire_if_held.
DELETE FROM chrono_slot WHERE run_id = ANY(ARRAY(
    SELECT r.id FROM chrono_run r
    WHERE r.id = ANY(ARRAY(SELECT run_id FROM chrono_slot))
))
