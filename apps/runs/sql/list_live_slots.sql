-- List the runs of a job that count against its bound and are not over, oldest first.
-- writes: nothing
-- index: chrono_slot_pkey, chrono_run_pkey
WITH taken AS MATERIALIZED (
    SELECT run_id FROM chrono_slot
    WHERE part = %(part)s::smallint AND job_id = %(job)s::uuid
), settled AS MATERIALIZED (
    (SELECT id FROM chrono_run WHERE id = ANY(ARRAY(SELECT run_id FROM taken))
    ORDER BY id, part)
    UNION ALL
    SELECT id FROM chrono_run_kept WHERE id = ANY(ARRAY(SELECT run_id FROM taken))
)
SELECT run_id FROM taken
WHERE (run_id IN (SELECT id FROM settled)) IS NOT TRUE
ORDER BY run_id
