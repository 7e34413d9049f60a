-- Tell how far the ledger decided these jobs' schedules, and their last fired run.
-- writes: nothing
-- index: chrono_occurrence_pkey
--
-- Attempt group 0 alone: manual and redriven runs are none of the schedule's. Nor is one
-- that was missed or late (kind 2) its last: it has a slot once it begins.
SELECT w.job_id, (
    SELECT floor(extract(
        epoch FROM coalesce(o.last_scheduled_for, o.scheduled_for)
    ) * 1000)::bigint
    FROM chrono_occurrence o
    WHERE o.part = w.part AND o.job_id = w.job_id AND o.attempt_group = 0
        AND o.scheduled_for >= to_timestamp(%(since)s::bigint / 1000.0::float8)
    ORDER BY o.scheduled_for DESC LIMIT 1
), (
    SELECT o.run_id FROM chrono_occurrence o
    WHERE o.part = w.part AND o.job_id = w.job_id AND o.attempt_group = 0
        AND o.outcome = 1 AND o.kind = 1
        AND o.scheduled_for >= to_timestamp(%(since)s::bigint / 1000.0::float8)
    ORDER BY o.scheduled_for DESC LIMIT 1
)
FROM unnest(%(parts)s::smallint[], %(jobs)s::uuid[]) AS w (part, job_id)
