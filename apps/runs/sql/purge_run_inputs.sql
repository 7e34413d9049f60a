-- Delete inputs of runs past every retention, a bounded number a statement.
-- writes: run_input
-- index: chrono_run_input_pkey
--
-- Ids begin with the time. One that still waits for an attempt keeps its input; of a
-- run that was made to run an old one again the time is that of its making.
DELETE FROM chrono_run_input WHERE ctid = ANY(ARRAY(
    SELECT old.tid FROM generate_series(0, 63) AS p CROSS JOIN LATERAL (
        SELECT i.ctid AS tid FROM chrono_run_input i
        WHERE i.part = p AND i.run_id < %(before)s::uuid
            AND NOT EXISTS (
                SELECT FROM chrono_timer t
                WHERE t.part = i.part AND t.ref = i.run_id AND t.kind <> 1
            ) AND NOT EXISTS (
                SELECT FROM chrono_timer_far t
                WHERE t.part = i.part AND t.ref = i.run_id AND t.kind <> 1
            ) AND NOT EXISTS (
                SELECT FROM chrono_lease l
                WHERE l.run_id = i.run_id AND l.part = i.part
            ) AND NOT EXISTS (
                SELECT FROM chrono_rerun r
                WHERE r.part = i.part AND r.rerun_id = i.run_id
                    AND r.made_at >= to_timestamp(%(since)s::bigint / 1000.0::float8)
            )
        ORDER BY i.run_id LIMIT %(limit)s::integer FOR UPDATE OF i SKIP LOCKED
    ) old LIMIT %(limit)s::integer
))
