-- Of some ready rows, list those that may be late: of jobs with late_after, not begun.
-- writes: nothing
-- index: chrono_ready_order on every slice
--
-- A stretch in the order of claims, from a row on; each row says where it ended and how
-- many rows it had. Where none may be late there is one row without a run. A bound in
-- the usual form is compared with the nominal instant here, so that hardly any row is
-- returned; the caller decides, by the due instant, and of what is written otherwise.
WITH looked AS MATERIALIZED (
    SELECT queue, priority, tag, due_at, run_id, job_id, tenant, part, attempt
    FROM chrono_ready
    WHERE (queue, priority, tag)
        > (%(queue)s::text, %(priority)s::smallint, %(tag)s::bigint)
    ORDER BY queue, priority, tag LIMIT %(limit)s::integer
), suspect AS (
    SELECT l.run_id, l.job_id, l.tenant, l.part, l.due_at,
        (p.policy -> 'late_after')::text AS bound, p.jitter_window
    FROM looked l CROSS JOIN LATERAL (
        SELECT p.policy, p.jitter_window FROM chrono_job j
        JOIN chrono_job_revision p ON p.job_id = j.id AND p.revision = j.revision
        WHERE j.id = l.job_id AND NOT j.paused AND j.deleted_at IS NULL OFFSET 0
    ) p
    WHERE l.attempt = 1 AND p.policy ? 'late_after'
        AND CASE WHEN p.policy ->> 'late_after' ~ '^[0-9]{1,9}(ms|[smhd])$'
            THEN to_timestamp(%(now)s::bigint / 1000.0::float8) - to_timestamp((
                'x' || substr(replace(l.run_id::text, '-', ''), 1, 12)
            )::bit(48)::bigint / 1000.0::float8) > (p.policy ->> 'late_after')::interval
            ELSE true END
        AND (
            SELECT true FROM chrono_breach b
            WHERE b.job_id = l.job_id AND b.kind = 1 AND b.run_id = l.run_id LIMIT 1
        ) IS NULL
        AND (
            SELECT true FROM chrono_withdrawn w
            WHERE w.run_id = l.run_id AND w.part = l.part LIMIT 1
        ) IS NULL
)
SELECT e.seen, e.queue, e.priority, e.tag, s.run_id, s.job_id, s.tenant, s.part,
    floor(extract(epoch FROM s.due_at) * 1000)::bigint, s.bound, s.jitter_window
FROM (
    SELECT queue, priority, tag, count(*) OVER () AS seen FROM looked
    ORDER BY queue DESC, priority DESC, tag DESC LIMIT 1
) e LEFT JOIN suspect s ON true
