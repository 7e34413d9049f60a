-- Read the occurrence that was decided not to run, by the id its run would have had.
-- writes: nothing
-- index: chrono_occurrence_pkey, one partition's part of one day
SELECT o.job_id, o.reason, o.decided_at, o.fence, o.revision, o.kind, o.attempt_group,
    o.occurrences, o.last_scheduled_for, v.queue, v.priority, j.key
FROM chrono_occurrence o
JOIN chrono_job j ON j.id = o.job_id
    AND (%(tenant)s::integer IS NULL OR j.tenant = %(tenant)s::integer)
LEFT JOIN chrono_job_revision v ON v.job_id = o.job_id AND v.revision = o.revision
WHERE o.part = %(part)s::smallint
    AND o.scheduled_for = to_timestamp(%(scheduled_for)s::bigint / 1000.0::float8)
    AND o.run_id = %(run)s::uuid AND o.outcome = 2
