-- List a job's decided occurrences, newest first, skipped stretches included.
-- writes: nothing
-- index: chrono_occurrence_pkey backwards
SELECT floor(extract(epoch FROM scheduled_for) * 1000)::bigint, attempt_group,
    floor(extract(epoch FROM decided_at) * 1000)::bigint, run_id, outcome, reason,
    kind, fence, version, revision, occurrences,
    floor(extract(epoch FROM last_scheduled_for) * 1000)::bigint
FROM chrono_occurrence
WHERE part = %(part)s::smallint AND job_id = %(job)s::uuid
    AND (scheduled_for, attempt_group) < (
        to_timestamp(%(before)s::bigint / 1000.0::float8), %(group)s::integer
    )
    AND (%(outcome)s::smallint IS NULL OR outcome = %(outcome)s::smallint)
    AND (%(reason)s::smallint IS NULL OR reason = %(reason)s::smallint)
ORDER BY job_id DESC, scheduled_for DESC, attempt_group DESC
LIMIT %(limit)s::integer
