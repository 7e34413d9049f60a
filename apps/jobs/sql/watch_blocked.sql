-- Of some runs behind a gate, list those that may be late; see watch_ready.
-- writes: nothing
-- index: chrono_blocked_pkey
--
-- The runs of a backfill are due when their turn comes, and never late.
WITH looked AS MATERIALIZED (
    SELECT run_id, part, due_at, job_id, tenant, attempt, backfill FROM chrono_blocked
    WHERE (run_id, part) > (%(run)s::uuid, %(part)s::smallint)
    ORDER BY run_id, part LIMIT %(limit)s::integer
), suspect AS (
    SELECT l.run_id, l.job_id, l.tenant, l.part, l.due_at,
        (p.policy -> 'late_after')::text AS bound, p.jitter_window
    FROM looked l CROSS JOIN LATERAL (
        SELECT p.policy, p.jitter_window FROM chrono_job j
        JOIN chrono_job_revision p ON p.job_id = j.id AND p.revision = j.revision
        WHERE j.id = l.job_id AND NOT j.paused AND j.deleted_at IS NULL OFFSET 0
    ) p
    WHERE l.attempt = 1 AND l.backfill IS NULL AND p.policy ? 'late_after'
        AND CASE WHEN p.policy ->> 'late_after' ~ '^[0-9]{1,9}(ms|[smhd])$'
            THEN to_timestamp(%(now)s::bigint / 1000.0::float8) - to_timestamp((
                'x' || substr(replace(l.run_id::text, '-', ''), 1, 12)
            )::bit(48)::bigint / 1000.0::float8) > (p.policy ->> 'late_after')::interval
            ELSE true END
        AND (
            SELECT true FROM chrono_breach b
            WHERE b.job_id = l.job_id AND b.kind = 1 AND b.run_id = l.run_id LIMIT 1
        ) IS NULL
)
SELECT e.seen, e.run_id, e.part, s.run_id, s.job_id, s.tenant, s.part,
    floor(extract(epoch FROM s.due_at) * 1000)::bigint, s.bound, s.jitter_window
FROM (
    SELECT run_id, part, count(*) OVER () AS seen FROM looked ORDER BY run_id DESC, part DESC LIMIT 1
) e LEFT JOIN suspect s ON true
