-- Find tables whose rows are never updated but were (invariant 8, and more).
-- writes: nothing
--
-- Rows of these move by delete and insert: a state once written is final, and a fire
-- never meets a row that changes under it. Counted by the server since its statistics
-- began; a reset can hide an update, nothing can invent one.
SELECT s.relname::text, s.n_tup_upd || ' updates'
FROM unnest(ARRAY[
    'chrono_run', 'chrono_run_kept', 'chrono_attempt', 'chrono_attempt_kept',
    'chrono_occurrence', 'chrono_timer', 'chrono_timer_far', 'chrono_ready',
    'chrono_job_revision'
]) AS w (relation)
CROSS JOIN LATERAL (
    SELECT relid FROM pg_partition_tree(to_regclass(w.relation))
    UNION SELECT to_regclass(w.relation)
) t
JOIN pg_stat_user_tables s ON s.relid = t.relid
WHERE s.n_tup_upd > 0
