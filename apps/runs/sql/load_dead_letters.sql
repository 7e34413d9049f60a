-- Read these dead letters of a tenant, or of any, without their payloads.
-- writes: nothing
-- index: chrono_dead_letter_pkey, chrono_rerun_pkey
SELECT d.run_id, d.part, d.tenant, d.job_id, j.key, j.deleted_at IS NOT NULL, d.revision,
    d.queue, d.reason, d.attempt, d.died_at, left((d.errors -> -1) ->> 'error', 2000),
    d.closed, d.closed_at, d.closed_by, d.note, d.noted_at, d.noted_by, r.rerun_id
FROM chrono_dead_letter d
JOIN chrono_job j ON j.id = d.job_id
LEFT JOIN chrono_rerun r ON r.part = d.part AND r.run_id = d.run_id
WHERE d.run_id = ANY(%(runs)s::uuid[])
    AND (%(tenant)s::integer IS NULL OR d.tenant = %(tenant)s::integer)
ORDER BY d.run_id
