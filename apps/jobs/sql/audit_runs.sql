-- Find what is wrong with a stretch of the history, or with some runs of it.
-- writes: nothing
-- index: chrono_run_pkey, chrono_occurrence_pkey, chrono_job_revision_key
--
-- A run's jitter is the SHA-256 of its job's id as a number, modulo the window: worked
-- out here a second time. It may be due later than that, where it was late already or is
-- tried again, but never before. An attempt that ended with its process is spared.
WITH page AS MATERIALIZED (
    SELECT r.id, r.part, r.job_id, r.revision, r.tenant, r.due_at, r.dispatched_at,
        r.started_at, r.finished_at, r.fence, r.state, r.reason, r.attempt, r.worker,
        r.xmin AS written, to_timestamp((
            'x' || substr(replace(r.id::text, '-', ''), 1, 12)
        )::bit(48)::bigint / 1000.0::float8)::timestamptz(3) AS scheduled_for,
        get_byte(uuid_send(r.id), 15) & 1 = 1 AS extra
    FROM chrono_run r
    WHERE r.id > %(low)s::uuid AND r.id <= %(high)s::uuid
        AND (%(runs)s::uuid[] IS NULL OR r.id = ANY(%(runs)s::uuid[]))
        AND (%(tenant)s::integer IS NULL OR r.tenant = %(tenant)s::integer)
), jitter AS MATERIALIZED (
    SELECT d.job_id, d.revision, v.max_attempts,
        interval '1 millisecond' * CASE WHEN v.jitter_window > 0 THEN (
            SELECT mod(sum(power(2::numeric, 32 * (7 - word)) * (
                'x' || substr(encode(sha256(uuid_send(d.job_id)), 'hex'),
                    8 * word + 1, 8)
            )::bit(32)::bigint), v.jitter_window) FROM generate_series(0, 7) AS word
        )::float8 ELSE 0 END AS later
    FROM (SELECT DISTINCT job_id, revision FROM page) d
    CROSS JOIN LATERAL (
        SELECT jitter_window,
            (retry_policy ->> 'max_attempts')::integer AS max_attempts
        FROM chrono_job_revision
        WHERE job_id = d.job_id AND revision = d.revision OFFSET 0
    ) v
)
SELECT w.wrong, 'run ' || r.id
FROM page r
JOIN chrono_partition p ON p.id = r.part
LEFT JOIN jitter j ON j.job_id = r.job_id AND j.revision = r.revision
LEFT JOIN LATERAL (
    SELECT o.outcome FROM chrono_occurrence o
    WHERE o.part = r.part AND o.job_id = r.job_id
        AND o.scheduled_for = r.scheduled_for AND o.run_id = r.id LIMIT 1
) o ON true
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN NOT (isfinite(r.due_at) AND isfinite(r.dispatched_at)
            AND isfinite(r.started_at) AND isfinite(r.finished_at)) THEN 'infinite'
        WHEN r.due_at < r.scheduled_for THEN 'due'
        WHEN r.dispatched_at < r.due_at THEN 'ready'
        WHEN r.started_at < r.due_at THEN 'started'
        WHEN r.started_at < r.dispatched_at THEN 'claimed'
        WHEN r.finished_at < r.started_at THEN 'ended'
        WHEN r.fence > p.fence THEN 'fence'
        WHEN o.outcome IS NULL THEN 'orphan'
        WHEN o.outcome = 2 AND r.state NOT IN (4, 5) THEN 'skipped'
        WHEN NOT r.extra AND r.due_at < r.scheduled_for + j.later THEN 'jitter'
        WHEN r.attempt > j.max_attempts AND r.attempt > j.max_attempts + coalesce((
            SELECT deaths FROM chrono_death WHERE run_id = r.id AND part = r.part
        ), 0) THEN 'attempt'
        WHEN %(commit_times)s::boolean AND pg_xact_commit_timestamp(r.written)
            > r.finished_at + interval '1 minute' THEN 'rewritten'
        WHEN r.state = 4 AND r.reason = 18 AND r.worker IS NULL AND (
            SELECT true FROM chrono_audit_event e
            WHERE e.tenant_id = r.tenant AND e.xmin = r.written
                AND (e.object_kind, e.object_id) IN (
                    ('run', r.id::text), ('job', r.job_id::text)) LIMIT 1
        ) IS NOT TRUE THEN 'unrecorded'
    END AS wrong
) w
WHERE w.wrong IS NOT NULL
LIMIT %(limit)s::integer
