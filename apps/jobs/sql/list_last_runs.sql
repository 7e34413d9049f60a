-- Read the last fired run of each of these jobs, and where it stands.
-- writes: nothing
-- index: chrono_occurrence_pkey, chrono_run_pkey, chrono_run_kept_pkey,
-- chrono_lease_pkey
--
-- 13 is running, 12 everything that waits. A run whose rows are pruned was a success:
-- all else is kept as long as the ledger.
SELECT o.job_id, o.run_id, coalesce(z.state, r.state, CASE
        WHEN l.run_id IS NOT NULL THEN 13
        WHEN o.scheduled_for > clock_timestamp() - interval '6 days' THEN 12
        ELSE 1
    END)::smallint, r.reason,
    floor(extract(epoch FROM r.finished_at) * 1000)::bigint
FROM unnest(%(parts)s::smallint[], %(jobs)s::uuid[]) AS w (part, job_id)
CROSS JOIN LATERAL (
    SELECT o.part, o.job_id, o.run_id, o.scheduled_for FROM chrono_occurrence o
    WHERE o.part = w.part AND o.job_id = w.job_id AND o.outcome = 1
    ORDER BY o.scheduled_for DESC, o.attempt_group DESC LIMIT 1
) o
LEFT JOIN LATERAL (
    SELECT state, reason, finished_at FROM chrono_run
    WHERE id = o.run_id AND part = o.part
    UNION ALL
    SELECT state, reason, finished_at FROM chrono_run_kept
    WHERE id = o.run_id AND part = o.part
    LIMIT 1
) r ON true
LEFT JOIN chrono_lease l ON l.run_id = o.run_id AND l.part = o.part
LEFT JOIN chrono_resolution z ON z.run_id = o.run_id AND z.part = o.part
