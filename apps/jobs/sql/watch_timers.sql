-- Of some runs that wait in a timer, list those that may be late; see watch_ready.
-- writes: nothing
-- index: chrono_timer_waiting on every bucket
--
-- What was handed back without being begun waits here again and again: it is late by
-- its first due instant, not by the timer's.
WITH looked AS MATERIALIZED (
    SELECT part, ref, due_at, job_id, attempt FROM chrono_timer
    WHERE kind <> 1 AND (part, ref) > (%(part)s::smallint, %(run)s::uuid)
    ORDER BY part, ref LIMIT %(limit)s::integer
), suspect AS (
    SELECT l.ref AS run_id, l.job_id, p.tenant, l.part, l.due_at,
        (p.policy -> 'late_after')::text AS bound, p.jitter_window
    FROM looked l CROSS JOIN LATERAL (
        SELECT j.tenant, p.policy, p.jitter_window FROM chrono_job j
        JOIN chrono_job_revision p ON p.job_id = j.id AND p.revision = j.revision
        WHERE j.id = l.job_id AND NOT j.paused AND j.deleted_at IS NULL OFFSET 0
    ) p
    WHERE l.attempt = 1 AND p.policy ? 'late_after'
        AND CASE WHEN p.policy ->> 'late_after' ~ '^[0-9]{1,9}(ms|[smhd])$'
            THEN to_timestamp(%(now)s::bigint / 1000.0::float8) - to_timestamp((
                'x' || substr(replace(l.ref::text, '-', ''), 1, 12)
            )::bit(48)::bigint / 1000.0::float8) > (p.policy ->> 'late_after')::interval
            ELSE true END
        AND (
            SELECT true FROM chrono_breach b
            WHERE b.job_id = l.job_id AND b.kind = 1 AND b.run_id = l.ref LIMIT 1
        ) IS NULL
)
SELECT e.seen, e.part, e.ref, s.run_id, s.job_id, s.tenant, s.part,
    floor(extract(epoch FROM s.due_at) * 1000)::bigint, s.bound, s.jitter_window
FROM (
    SELECT part, ref, count(*) OVER () AS seen FROM looked ORDER BY part DESC, ref DESC LIMIT 1
) e LEFT JOIN suspect s ON true
