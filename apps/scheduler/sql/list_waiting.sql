-- List jobs that have runs behind a gate, in their order from one on.
-- writes: nothing
-- index: chrono_blocked_order (gate, part, job_id, due_at)
--
-- Steps from job to job along the index, past all the runs that wait of one.
WITH RECURSIVE step AS (
    (
        SELECT part, job_id, 1 AS depth FROM chrono_blocked
        WHERE gate = %(gate)s::text
            AND (part, job_id) > (%(after_part)s::smallint, %(after_job)s::uuid)
        ORDER BY part, job_id LIMIT 1
    )
    UNION ALL
    SELECT b.part, b.job_id, s.depth + 1
    FROM step s CROSS JOIN LATERAL (
        SELECT part, job_id FROM chrono_blocked
        WHERE gate = %(gate)s::text AND (part, job_id) > (s.part, s.job_id)
        ORDER BY part, job_id LIMIT 1
    ) b
    WHERE s.depth < %(limit)s::integer
)
SELECT s.part, s.job_id, j.revision, j.paused, j.deleted_at IS NOT NULL, j.tenant
FROM step s JOIN chrono_job j ON j.id = s.job_id
ORDER BY s.part, s.job_id
