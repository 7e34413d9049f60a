-- List the runs of a job's occurrences in a stretch, of every attempt group.
-- writes: nothing
-- index: chrono_occurrence_pkey, then chrono_run_pkey and chrono_run_kept_pkey;
-- chrono_timer_waiting
--
-- State is that of a settled run, NULL where it is not settled. An occurrence that an edit
-- left to be run late has no row in the ledger yet: it lies in a timer, whose ref is the
-- run's id, and ids of one stretch of time lie beside each other.
WITH found AS MATERIALIZED (
    SELECT scheduled_for, attempt_group, run_id, outcome
    FROM chrono_occurrence
    WHERE part = %(part)s::smallint AND job_id = %(job)s::uuid
        AND scheduled_for >= to_timestamp(%(start)s::bigint / 1000.0::float8)
        AND scheduled_for < to_timestamp(%(end)s::bigint / 1000.0::float8)
        AND outcome = 1
), settled AS MATERIALIZED (
    SELECT id, state FROM chrono_run
    WHERE id = ANY(ARRAY(SELECT run_id FROM found))
    UNION
    SELECT id, state FROM chrono_run_kept
    WHERE id = ANY(ARRAY(SELECT run_id FROM found))
)
SELECT floor(extract(epoch FROM f.scheduled_for) * 1000)::bigint, f.attempt_group,
    s.state
FROM found f LEFT JOIN settled s ON s.id = f.run_id
UNION ALL
SELECT floor(extract(epoch FROM scheduled_for) * 1000)::bigint, attempt_group, NULL
FROM (
    SELECT scheduled_for, attempt_group FROM chrono_timer
    WHERE part = %(part)s::smallint AND job_id = %(job)s::uuid AND kind <> 1
        AND kind <> 4 AND ref >= %(low)s::uuid AND ref < %(high)s::uuid
    UNION ALL
    SELECT scheduled_for, attempt_group FROM chrono_timer_far
    WHERE part = %(part)s::smallint AND job_id = %(job)s::uuid AND kind <> 1
        AND kind <> 4 AND ref >= %(low)s::uuid AND ref < %(high)s::uuid
) t
ORDER BY 1, 2
