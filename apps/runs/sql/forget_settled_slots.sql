-- Forget slots of settled runs; fire takes no notice of them any more.
-- writes: slot
-- index: chrono_run_pkey
DELETE FROM chrono_slot s
WHERE EXISTS (
    SELECT FROM chrono_run r WHERE r.id = s.run_id AND r.part = s.part
)
