-- Of these runs, list those that are still live: leased, waiting, or ready.
-- writes: nothing
--
-- The slow path of overlap skip, for a previous run older than the history kept. One
-- whose job has another live run that counts is live in its place.
SELECT w.run_id
FROM unnest(%(parts)s::smallint[], %(runs)s::uuid[], %(jobs)s::uuid[])
    AS w (part, run_id, job_id)
WHERE EXISTS (
        SELECT FROM chrono_lease l WHERE l.run_id = w.run_id AND l.part = w.part)
    OR w.run_id IN (
        -- Ready has no index by run: one scan for all that are asked for.
        SELECT y.run_id FROM chrono_ready y WHERE y.run_id = ANY(%(runs)s::uuid[]))
    OR EXISTS (
        SELECT FROM chrono_timer t
        WHERE t.part = w.part AND t.ref = w.run_id AND t.kind <> 1)
    OR EXISTS (
        SELECT FROM chrono_timer_far t
        WHERE t.part = w.part AND t.ref = w.run_id AND t.kind <> 1)
    OR EXISTS (
        SELECT FROM chrono_parked k WHERE k.run_id = w.run_id AND k.part = w.part)
    OR EXISTS (
        SELECT FROM chrono_blocked b WHERE b.run_id = w.run_id AND b.part = w.part)
    OR EXISTS (
        SELECT FROM chrono_slot s
        WHERE s.part = w.part AND s.job_id = w.job_id AND NOT EXISTS (
            SELECT FROM chrono_run r WHERE r.id = s.run_id AND r.part = s.part))
