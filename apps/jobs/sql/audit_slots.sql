-- Find slots whose run is nowhere: their job would skip for ever.
-- writes: nothing
-- index: chrono_run_pkey, chrono_lease_pkey, chrono_timer_waiting
SELECT 'run ' || s.run_id, 'holds a slot of job ' || s.job_id || ' and is nowhere'
FROM chrono_slot s
WHERE NOT EXISTS (
        SELECT FROM chrono_run r WHERE r.id = s.run_id AND r.part = s.part)
    AND NOT EXISTS (
        SELECT FROM chrono_run_kept r WHERE r.id = s.run_id AND r.part = s.part)
    AND NOT EXISTS (SELECT FROM chrono_ready r WHERE r.run_id = s.run_id)
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
LIMIT %(limit)s::integer
