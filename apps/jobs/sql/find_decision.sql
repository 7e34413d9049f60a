-- Read what the ledger has of a job's occurrence at an instant, and of the last before.
-- writes: nothing
-- index: chrono_occurrence_pkey, backwards
--
-- Of several attempt groups the newest comes first. The row of the schedule's last
-- decision at or before the instant may stand for a stretch that reaches over it.
(
    SELECT floor(extract(epoch FROM scheduled_for) * 1000)::bigint, attempt_group,
        outcome, reason, run_id, revision,
        floor(extract(epoch FROM decided_at) * 1000)::bigint, occurrences,
        floor(extract(epoch FROM last_scheduled_for) * 1000)::bigint
    FROM chrono_occurrence
    WHERE part = %(part)s::smallint AND job_id = %(job)s::uuid
        AND scheduled_for = to_timestamp(%(at)s::bigint / 1000.0::float8)
    ORDER BY attempt_group DESC LIMIT 10
) UNION ALL (
    SELECT floor(extract(epoch FROM scheduled_for) * 1000)::bigint, attempt_group,
        outcome, reason, run_id, revision,
        floor(extract(epoch FROM decided_at) * 1000)::bigint, occurrences,
        floor(extract(epoch FROM last_scheduled_for) * 1000)::bigint
    FROM chrono_occurrence
    WHERE part = %(part)s::smallint AND job_id = %(job)s::uuid AND attempt_group = 0
        AND scheduled_for < to_timestamp(%(at)s::bigint / 1000.0::float8)
        AND scheduled_for >= to_timestamp(%(since)s::bigint / 1000.0::float8)
    ORDER BY scheduled_for DESC LIMIT 1
)
