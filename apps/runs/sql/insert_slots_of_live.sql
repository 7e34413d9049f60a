-- Have the live runs of jobs count against a bound that their jobs did not have before.
-- writes: slot
-- index: chrono_occurrence_pkey, chrono_run_pkey, chrono_blocked_pkey
--
-- Of each job the newest of its fired runs, of every attempt group. What waits for its
-- first place takes its slot when it is let in. The caller keeps the partitions' leaders
-- from firing; a run that ends meanwhile leaves a slot that nobody takes notice of.
WITH fired AS MATERIALIZED (
    SELECT w.part, w.job_id, o.run_id
    FROM unnest(%(parts)s::smallint[], %(jobs)s::uuid[]) AS w (part, job_id)
    CROSS JOIN LATERAL (
        SELECT run_id FROM chrono_occurrence
        WHERE part = w.part AND job_id = w.job_id AND outcome = 1
            AND scheduled_for >= to_timestamp(%(since)s::bigint / 1000.0::float8)
        ORDER BY scheduled_for DESC, attempt_group DESC LIMIT %(most)s::integer
    ) o
), settled AS MATERIALIZED (
    SELECT id FROM chrono_run WHERE id = ANY(ARRAY(SELECT run_id FROM fired))
), waiting AS MATERIALIZED (
    SELECT run_id FROM chrono_blocked
    WHERE run_id = ANY(ARRAY(SELECT run_id FROM fired))
        AND gate IN ('overlap', 'catch_up')
)
INSERT INTO chrono_slot (part, job_id, run_id)
SELECT part, job_id, run_id FROM fired
WHERE (run_id IN (SELECT id FROM settled)) IS NOT TRUE
    AND (run_id IN (SELECT run_id FROM waiting)) IS NOT TRUE
ON CONFLICT DO NOTHING
