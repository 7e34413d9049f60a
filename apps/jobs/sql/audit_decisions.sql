-- Read a partition's jobs with what the ledger says since their plan began.
-- writes: nothing
-- index: chrono_job_epoch, chrono_occurrence_pkey
--
-- The job and its decisions come from one snapshot. The newest `rows` of each job.
SELECT j.id, j.version, j.paused OR j.deleted_at IS NOT NULL,
    floor(extract(epoch FROM j.activated_at) * 1000)::bigint, r.schedule::text,
    d.scheduled_for, d.last_for, d.versions
FROM chrono_job j
JOIN chrono_job_revision r ON r.job_id = j.id AND r.revision = j.revision
CROSS JOIN LATERAL (
    SELECT array_agg(
            floor(extract(epoch FROM o.scheduled_for) * 1000)::bigint
            ORDER BY o.scheduled_for
        ) AS scheduled_for,
        array_agg(
            floor(extract(epoch FROM o.last_scheduled_for) * 1000)::bigint
            ORDER BY o.scheduled_for
        ) AS last_for,
        array_agg(o.version ORDER BY o.scheduled_for) AS versions
    FROM (
        SELECT scheduled_for, last_scheduled_for, version FROM chrono_occurrence
        WHERE part = j.part AND job_id = j.id AND attempt_group = 0
            AND scheduled_for > greatest(
                j.activated_at, to_timestamp(%(since)s::bigint / 1000.0::float8)
            )
        ORDER BY scheduled_for DESC LIMIT %(rows)s::integer
    ) o
) d
WHERE j.part = %(part)s::smallint AND d.scheduled_for IS NOT NULL
