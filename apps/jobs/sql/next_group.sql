-- Tell the attempt group of a job's next extra run of an instant: above all there are.
-- writes: nothing
-- index: chrono_occurrence_pkey, chrono_timer_waiting
--
-- What is not fired yet lies in a timer, whose ref is the run's id: ids of one instant
-- lie beside each other. One that is not fired yet was asked for in this millisecond,
-- too, so it is due at it. The caller holds the job's row: no other run comes between.
SELECT 1 + greatest(0, (
    SELECT max(attempt_group) FROM chrono_occurrence
    WHERE part = %(part)s::smallint AND job_id = %(job)s::uuid
        AND scheduled_for = to_timestamp(%(scheduled_for)s::bigint / 1000.0::float8)
), (
    SELECT max(attempt_group) FROM chrono_timer
    WHERE due_at = to_timestamp(%(scheduled_for)s::bigint / 1000.0::float8)
        AND part = %(part)s::smallint AND job_id = %(job)s::uuid AND kind <> 1
        AND ref >= %(low)s::uuid AND ref < %(high)s::uuid
), (
    SELECT max(attempt_group) FROM chrono_timer_far
    WHERE part = %(part)s::smallint AND job_id = %(job)s::uuid AND kind <> 1
        AND ref >= %(low)s::uuid AND ref < %(high)s::uuid
))
