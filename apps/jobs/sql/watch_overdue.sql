-- List occurrences that are due and that no leader has decided, of jobs with late_after.
-- writes: nothing
-- index: chrono_timer_key on every bucket that is due
--
-- The first ones of each partition: usually there are none.
SELECT t.job_id, p.tenant, t.part,
    floor(extract(epoch FROM t.scheduled_for) * 1000)::bigint,
    (p.policy -> 'late_after')::text, p.jitter_window
FROM generate_series(0, 63) AS n (part)
CROSS JOIN LATERAL (
    SELECT part, job_id, scheduled_for, version FROM chrono_timer
    WHERE part = n.part::smallint AND kind = 1
        AND due_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
    ORDER BY due_at LIMIT %(limit)s::integer
) t
CROSS JOIN LATERAL (
    SELECT j.tenant, p.policy, p.jitter_window FROM chrono_job j
    JOIN chrono_job_revision p ON p.job_id = j.id AND p.revision = j.revision
    WHERE j.id = t.job_id AND j.version = t.version AND NOT j.paused
        AND j.deleted_at IS NULL OFFSET 0
) p
WHERE p.policy ? 'late_after'
