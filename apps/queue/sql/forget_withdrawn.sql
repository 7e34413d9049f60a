-- Forget withdrawn runs that lie nowhere any more.
-- writes: withdrawn
--
-- All places are asked in one snapshot: a run forgotten while its retry waits in timer
-- would run after its cancel was answered.
DELETE FROM chrono_withdrawn w
WHERE NOT EXISTS (SELECT FROM chrono_ready r WHERE r.run_id = w.run_id)
    AND NOT EXISTS (
        SELECT FROM chrono_lease l WHERE l.run_id = w.run_id AND l.part = w.part)
    AND NOT EXISTS (
        SELECT FROM chrono_timer t
        WHERE t.part = w.part AND t.ref = w.run_id AND t.kind <> 1)
    AND NOT EXISTS (
        SELECT FROM chrono_timer_far t
        WHERE t.part = w.part AND t.ref = w.run_id AND t.kind <> 1)
    AND NOT EXISTS (
        SELECT FROM chrono_parked k WHERE k.run_id = w.run_id AND k.part = w.part)
    AND NOT EXISTS (
        SELECT FROM chrono_blocked b WHERE b.run_id = w.run_id AND b.part = w.part)
