-- List a tenant's dead letters by run id, newest first, without their payloads.
-- writes: nothing
-- index: chrono_dead_letter_open or chrono_dead_letter_tenant, with a job
-- chrono_dead_letter_job; chrono_rerun_pkey, chrono_job_revision_key
--
-- What a filter leaves out is looked at, too: of that, `look` letters at most. Each row
-- says how many were looked at and where the look ended, and so does a row of its own
-- where none is shown. The last error alone is read of each.
WITH looked AS MATERIALIZED (
    SELECT * FROM (
        (
            SELECT run_id, part FROM chrono_dead_letter
            WHERE tenant = %(tenant)s::integer AND closed IS NULL
                AND run_id < %(before)s::uuid AND %(open)s::boolean
                AND %(job)s::uuid IS NULL
            ORDER BY run_id DESC LIMIT %(look)s::integer
        ) UNION ALL (
            SELECT run_id, part FROM chrono_dead_letter
            WHERE tenant = %(tenant)s::integer AND run_id < %(before)s::uuid
                AND NOT %(open)s::boolean AND %(job)s::uuid IS NULL
            ORDER BY run_id DESC LIMIT %(look)s::integer
        ) UNION ALL (
            SELECT run_id, part FROM chrono_dead_letter
            WHERE job_id = %(job)s::uuid AND tenant = %(tenant)s::integer
                AND run_id < %(before)s::uuid
            ORDER BY run_id DESC LIMIT %(look)s::integer
        )
    ) AS several
), page AS (
    SELECT d.*, j.key, j.deleted_at IS NOT NULL AS deleted
    FROM looked l
    JOIN chrono_dead_letter d ON d.run_id = l.run_id AND d.part = l.part
    JOIN chrono_job j ON j.id = d.job_id
    JOIN chrono_job_revision v ON v.job_id = d.job_id AND v.revision = d.revision
    WHERE (NOT %(open)s::boolean OR d.closed IS NULL)
        AND (%(closed)s::smallint IS NULL OR d.closed = %(closed)s::smallint)
        AND (NOT %(living)s::boolean OR j.deleted_at IS NULL)
        AND (%(reason)s::smallint IS NULL OR d.reason = %(reason)s::smallint)
        AND (%(queue)s::text IS NULL OR d.queue = %(queue)s::text)
        AND (%(tag)s::text IS NULL OR %(tag)s::text = ANY(j.tags))
        AND (
            %(target)s::text IS NULL OR v.target ->> 'name' = %(target)s::text
            OR starts_with(v.target ->> 'url', %(target)s::text)
        )
        AND (%(since)s::bigint IS NULL
            OR d.died_at >= to_timestamp(%(since)s::bigint / 1000.0::float8))
        AND (%(until)s::bigint IS NULL
            OR d.died_at < to_timestamp(%(until)s::bigint / 1000.0::float8))
    ORDER BY d.run_id DESC LIMIT %(limit)s::integer
)
SELECT s.looked, s.last, p.run_id, p.part, p.tenant, p.job_id, p.key, p.deleted,
    p.revision, p.queue, p.reason, p.attempt, p.died_at, left((p.errors -> -1) ->> 'error', 2000),
    p.closed, p.closed_at, p.closed_by, p.note, p.noted_at, p.noted_by, r.rerun_id
FROM (
    SELECT count(*)::integer AS looked,
        (SELECT run_id FROM looked ORDER BY run_id LIMIT 1) AS last
    FROM looked
) s
LEFT JOIN page p ON true
LEFT JOIN chrono_rerun r ON r.part = p.part AND r.run_id = p.run_id
ORDER BY p.run_id DESC
