-- Forget slots whose run lies nowhere any more: its history is pruned.
-- writes: slot
--
-- All places are asked in one snapshot, and the slot's row came with the run's timer.
DELETE FROM chrono_slot s
WHERE NOT EXISTS (SELECT FROM chrono_ready r WHERE r.run_id = s.run_id)
    AND NOT EXISTS (
        SELECT FROM chrono_lease l WHERE l.run_id = s.run_id AND l.part = s.part)
    AND NOT EXISTS (
        SELECT FROM chrono_timer t
        WHERE t.part = s.part AND t.ref = s.run_id AND t.kind <> 1)
    AND NOT EXISTS (
        SELECT FROM chrono_timer_far t
        WHERE t.part = s.part AND t.ref = s.run_id AND t.kind <> 1)
    AND NOT EXISTS (
        SELECT FROM chrono_parked k WHERE k.run_id = s.run_id AND k.part = s.part)
    AND NOT EXISTS (
        SELECT FROM chrono_blocked b WHERE b.run_id = s.run_id AND b.part = s.part)
