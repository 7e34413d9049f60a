-- List the live runs of jobs, and those that wait for a place, the oldest first.
-- writes: nothing
-- index: chrono_slot_pkey, chrono_occurrence_pkey, chrono_blocked_order
--
-- A live run is not settled, and does not wait for its first place: behind the gates of
-- overlap and catch-up nothing has begun. It has a slot, or is the schedule's last, which
-- has none where the job may have one run at a time.
WITH wanted AS MATERIALIZED (
    SELECT w.part, w.job_id
    FROM unnest(%(parts)s::smallint[], %(jobs)s::uuid[]) AS w (part, job_id)
), waiting AS MATERIALIZED (
    SELECT w.job_id, b.run_id, b.gate, b.due_at FROM wanted w CROSS JOIN LATERAL (
        SELECT run_id, gate, due_at FROM chrono_blocked
        WHERE gate IN ('overlap', 'catch_up') AND part = w.part AND job_id = w.job_id
        OFFSET 0
    ) b
), begun AS MATERIALIZED (
    SELECT w.job_id, s.run_id FROM wanted w CROSS JOIN LATERAL (
        SELECT run_id FROM chrono_slot
        WHERE part = w.part AND job_id = w.job_id OFFSET 0
    ) s
    UNION
    SELECT w.job_id, o.run_id FROM wanted w CROSS JOIN LATERAL (
        SELECT o.run_id FROM chrono_occurrence o
        WHERE o.part = w.part AND o.job_id = w.job_id AND o.outcome = 1
            AND o.attempt_group = 0
            AND (o.run_id IN (SELECT run_id FROM waiting)) IS NOT TRUE
        ORDER BY o.scheduled_for DESC LIMIT 1
    ) o
), settled AS MATERIALIZED (
    SELECT id FROM chrono_run WHERE id = ANY(ARRAY(SELECT run_id FROM begun))
    UNION ALL
    SELECT id FROM chrono_run_kept WHERE id = ANY(ARRAY(SELECT run_id FROM begun))
)
SELECT w.job_id, ARRAY(
    SELECT b.run_id FROM begun b WHERE b.job_id = w.job_id
        AND (b.run_id IN (SELECT id FROM settled)) IS NOT TRUE
        AND (b.run_id IN (SELECT run_id FROM waiting)) IS NOT TRUE
    ORDER BY b.run_id
), ARRAY(
    SELECT b.run_id FROM waiting b WHERE b.job_id = w.job_id AND b.gate = 'overlap'
    ORDER BY b.due_at, b.run_id
)
FROM wanted w
