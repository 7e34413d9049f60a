-- Find manual runs in the schedule's own group, and slots whose run is nowhere.
-- writes: nothing
-- index: chrono_occurrence_pkey, chrono_run_pkey
--
-- The last bit of an id says that its run is none of the schedule's.
SELECT 'run ' || run_id, 'of job ' || job_id || ' is manual and in group '
    || attempt_group
FROM chrono_occurrence
WHERE scheduled_for >= to_timestamp(%(since)s::bigint / 1000.0::float8) AND kind = 3
    AND (attempt_group < 1 OR get_bit(uuid_send(run_id), 120) = 0)
UNION ALL
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
