-- Tell which of these jobs had recent successes that took longer than their period.
-- writes: nothing
-- index: chrono_occurrence_pkey backwards, then chrono_run_pkey for each row
--
-- Of a job the last 20 runs of its schedule. To find them, 1,000 rows of the ledger are
-- looked at and no more: who runs long and skips meanwhile has many skips between two
-- runs. That bound holds where sorts are forbidden.
SELECT w.job_id, r.runs, r.longer, r.median, r.longest, r.longest_run
FROM unnest(
    %(parts)s::smallint[], %(jobs)s::uuid[], %(periods)s::bigint[]
) AS w (part, job_id, period)
CROSS JOIN LATERAL (
    SELECT count(*) AS runs, count(*) FILTER (WHERE s.length > w.period) AS longer,
        percentile_disc(0.5) WITHIN GROUP (ORDER BY s.length) AS median,
        max(s.length) AS longest,
        (array_agg(s.id ORDER BY s.length DESC))[1] AS longest_run
    FROM (
        SELECT run_id FROM (
            SELECT run_id, scheduled_for, attempt_group, outcome
            FROM chrono_occurrence
            WHERE part = w.part AND job_id = w.job_id
                AND scheduled_for >= to_timestamp(%(since)s::bigint / 1000.0::float8)
            ORDER BY scheduled_for DESC, attempt_group DESC LIMIT 1000
        ) AS looked
        WHERE outcome = 1 AND attempt_group = 0
        ORDER BY scheduled_for DESC, attempt_group DESC LIMIT 20
    ) o
    CROSS JOIN LATERAL (
        SELECT id, floor(extract(epoch FROM finished_at - started_at) * 1000)::bigint
            AS length
        FROM chrono_run
        WHERE id = o.run_id AND part = w.part AND state = 1
            AND started_at IS NOT NULL
        OFFSET 0
    ) s
) r
WHERE r.longer > 0
