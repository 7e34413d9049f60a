-- List a tenant's jobs by id, newest first, without their payloads.
-- writes: nothing
-- index: chrono_job_living or chrono_job_deleted, chrono_job_revision_key,
-- chrono_plan_end_pkey; with a key chrono_job_key
--
-- What a filter leaves out is looked at, too: of that, `look` jobs at most. Whether a
-- single instant or an end is over is told from its text, so that no row can make the
-- list fail. What is over by its end alone counts as ended once its jitter has passed,
-- though something may be undecided. What has used up its number of runs has a row that
-- says its plan is over.
-- Tenant and id are compared and ordered as a row, which is the index's own order. Asked
-- for one tenant's ids, the planner may walk down the primary key through everybody's.
WITH looked AS (
    SELECT * FROM (
        (
            SELECT * FROM chrono_job
            WHERE tenant >= %(tenant)s::integer
                AND (tenant, id) < (%(tenant)s::integer, %(before)s::uuid)
                AND deleted_at IS NULL AND %(living)s::boolean
                AND %(key)s::text IS NULL
            ORDER BY tenant DESC, id DESC LIMIT %(look)s::integer
        ) UNION ALL (
            SELECT * FROM chrono_job
            WHERE tenant = %(tenant)s::integer AND key = %(key)s::text
                AND id < %(before)s::uuid AND deleted_at IS NULL
                AND %(living)s::boolean
        ) UNION ALL (
            SELECT * FROM chrono_job
            WHERE tenant >= %(tenant)s::integer
                AND (tenant, id) < (%(tenant)s::integer, %(before)s::uuid)
                AND deleted_at IS NOT NULL AND %(deleted)s::boolean
            ORDER BY tenant DESC, id DESC LIMIT %(look)s::integer
        )
    ) AS several
    ORDER BY tenant DESC, id DESC LIMIT %(look)s::integer
)
SELECT j.id, j.tenant, j.part, j.key, j.name, j.tags, j.version, j.revision,
    j.changes, j.paused, j.pause_note,
    floor(extract(epoch FROM j.paused_until) * 1000)::bigint, j.paused_by,
    floor(extract(epoch FROM j.activated_at) * 1000)::bigint,
    floor(extract(epoch FROM j.created_at) * 1000)::bigint,
    floor(extract(epoch FROM j.updated_at) * 1000)::bigint,
    floor(extract(epoch FROM j.deleted_at) * 1000)::bigint, j.remaining_runs,
    r.schedule::text,
    r.jitter_window, r.overlap_policy, r.queue, r.priority, r.target::text,
    NULL::text, r.retry_policy::text, r.policy::text
FROM looked j
CROSS JOIN LATERAL (
    SELECT * FROM chrono_job_revision
    WHERE job_id = j.id AND revision = j.revision LIMIT 1
) r
WHERE (
        %(states)s::text[] IS NULL OR CASE
            WHEN j.deleted_at IS NOT NULL THEN 'deleted'
            WHEN j.paused THEN 'paused'
            WHEN j.remaining_runs IS NOT NULL AND (
                SELECT true FROM chrono_plan_end e
                WHERE e.part = j.part AND e.job_id = j.id AND e.version = j.version
                LIMIT 1
            ) THEN 'ended'
            WHEN rtrim(r.schedule ->> 'ends_at', 'Z') COLLATE "C" <= to_char(
                greatest(
                    j.activated_at,
                    clock_timestamp() - r.jitter_window * interval '1 millisecond'
                ) AT TIME ZONE 'UTC',
                'YYYY-MM-DD"T"HH24:MI:SS.MS'
            ) THEN 'ended'
            WHEN r.schedule ->> 'run_at' IS NULL THEN 'active'
            WHEN rtrim(r.schedule ->> 'run_at', 'Z') COLLATE "C" > to_char(
                clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS'
            ) THEN 'active'
            WHEN rtrim(r.schedule ->> 'run_at', 'Z') COLLATE "C" <= to_char(
                greatest(j.activated_at, clock_timestamp() - interval '30 days')
                    AT TIME ZONE 'UTC',
                'YYYY-MM-DD"T"HH24:MI:SS.MS'
            ) THEN 'ended'
            WHEN EXISTS (
                SELECT FROM chrono_occurrence o
                WHERE o.part = j.part AND o.job_id = j.id AND o.attempt_group = 0
                    AND o.scheduled_for > j.activated_at
            ) THEN 'ended'
            ELSE 'active'
        END = ANY(%(states)s::text[])
    )
    AND (%(key)s::text IS NULL OR j.key = %(key)s::text)
    AND j.tags @> %(tags)s::text[]
    AND (%(queue)s::text IS NULL OR r.queue = %(queue)s::text)
    AND (%(priority)s::smallint IS NULL OR r.priority = %(priority)s::smallint)
    AND (
        %(target)s::text IS NULL OR r.target ->> 'name' = %(target)s::text
        OR starts_with(r.target ->> 'url', %(target)s::text)
    )
    AND (
        %(words)s::text IS NULL OR j.id::text = lower(%(words)s::text)
        OR strpos(
            lower(concat_ws(
                E'\n', j.key, j.name, array_to_string(j.tags, E'\n'),
                r.target ->> 'name', r.target ->> 'url',
                r.schedule ->> 'cron', r.schedule ->> 'written',
                r.schedule ->> 'interval', r.schedule ->> 'fixed_delay'
            )),
            lower(%(words)s::text)
        ) > 0
    )
ORDER BY j.tenant DESC, j.id DESC LIMIT %(limit)s::integer
