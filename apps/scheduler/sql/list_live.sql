-- List the live runs of jobs, and those that wait for a place, the oldest first.
-- writes: nothing
-- index: chrono_slot_pkey, chrono_occurrence_pkey, chrono_blocked_order
--
-- A live run is not settled, and does not wait for its first place: behind the gates of
-- overlap and catch-up nothing has begun. It has a slot, or is the last that the schedule
-- itself fired, which has none where the job may have one run at a time. What was missed
-- or late (kind 2) has a slot once it begins: cancelled before, it hides no other.
--
-- A run that somebody put off to a later instant waits for that, not for a place.
--
-- Whether a run waits is asked by its key, one by one: a job may have a thousand that
-- catch up.
WITH wanted AS MATERIALIZED (
    SELECT w.part, w.job_id
    FROM unnest(%(parts)s::smallint[], %(jobs)s::uuid[]) AS w (part, job_id)
), begun AS MATERIALIZED (
    SELECT w.part, w.job_id, s.run_id FROM wanted w CROSS JOIN LATERAL (
        SELECT run_id FROM chrono_slot
        WHERE part = w.part AND job_id = w.job_id OFFSET 0
    ) s
    UNION
    SELECT w.part, w.job_id, o.run_id FROM wanted w CROSS JOIN LATERAL (
        SELECT o.run_id FROM chrono_occurrence o
        WHERE o.part = w.part AND o.job_id = w.job_id AND o.outcome = 1
            AND o.attempt_group = 0 AND o.kind = 1
            AND ((SELECT b.gate FROM chrono_blocked b
                WHERE b.run_id = o.run_id AND b.part = o.part
            ) IN ('overlap', 'catch_up')) IS NOT TRUE
        ORDER BY o.scheduled_for DESC LIMIT 1
    ) o
), settled AS MATERIALIZED (
    -- With an order asked for and no sort allowed, no index but the key can answer.
    (SELECT id FROM chrono_run WHERE id = ANY(ARRAY(SELECT run_id FROM begun))
    ORDER BY id, part)
    UNION ALL
    SELECT id FROM chrono_run_kept WHERE id = ANY(ARRAY(SELECT run_id FROM begun))
)
SELECT w.job_id, ARRAY(
    SELECT b.run_id FROM begun b WHERE b.job_id = w.job_id
        AND (b.run_id IN (SELECT id FROM settled)) IS NOT TRUE
        AND ((SELECT l.gate FROM chrono_blocked l
            WHERE l.run_id = b.run_id AND l.part = b.part
        ) IN ('overlap', 'catch_up')) IS NOT TRUE
    ORDER BY b.run_id
), ARRAY(
    SELECT run_id FROM chrono_blocked
    WHERE gate = 'overlap' AND part = w.part AND job_id = w.job_id
        AND due_at <= to_timestamp(%(now)s::bigint / 1000.0::float8)
    ORDER BY due_at, run_id
), ARRAY(
    SELECT run_id FROM chrono_slot WHERE part = w.part AND job_id = w.job_id
)
FROM wanted w
