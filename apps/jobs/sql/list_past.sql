-- List the runs of a job's occurrences in a stretch, of every attempt group.
-- writes: nothing
-- index: chrono_occurrence_pkey, then chrono_run_pkey and chrono_run_kept_pkey;
-- chrono_resolution_pkey, chrono_timer_waiting
--
-- State is that of a settled run, or a person's verdict on it; NULL where it is live. A fired run that lies nowhere was
-- a success and left with its day: all else is kept as long as the ledger. All places are
-- asked in one snapshot; ready has no index by run and is read once. An occurrence that an edit
-- left to be run late has no row in the ledger yet: it lies in a timer, whose ref is the
-- run's id, and ids of one stretch of time lie beside each other. An extra run that was
-- cancelled before it fired is none, but its attempt group is taken: the last column.
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
), unsettled AS MATERIALIZED (
    SELECT run_id FROM found WHERE (run_id IN (SELECT id FROM settled)) IS NOT TRUE
), live AS MATERIALIZED (
    SELECT run_id FROM chrono_lease
    WHERE run_id = ANY(ARRAY(SELECT run_id FROM unsettled))
    UNION ALL
    SELECT run_id FROM chrono_ready WHERE run_id IN (SELECT run_id FROM unsettled)
    UNION ALL
    SELECT run_id FROM chrono_blocked
    WHERE run_id = ANY(ARRAY(SELECT run_id FROM unsettled))
    UNION ALL
    SELECT run_id FROM chrono_parked
    WHERE run_id = ANY(ARRAY(SELECT run_id FROM unsettled))
    UNION ALL
    SELECT ref FROM chrono_timer WHERE part = %(part)s::smallint AND kind <> 1
        AND ref = ANY(ARRAY(SELECT run_id FROM unsettled))
    UNION ALL
    SELECT ref FROM chrono_timer_far WHERE part = %(part)s::smallint AND kind <> 1
        AND ref = ANY(ARRAY(SELECT run_id FROM unsettled))
)
SELECT floor(extract(epoch FROM f.scheduled_for) * 1000)::bigint, f.attempt_group,
    CASE WHEN s.id IS NOT NULL THEN coalesce(z.state, s.state)
        WHEN (f.run_id IN (SELECT run_id FROM live)) IS NOT TRUE THEN 1
    END::smallint, true
FROM found f LEFT JOIN settled s ON s.id = f.run_id
LEFT JOIN chrono_resolution z
    ON z.run_id = f.run_id AND z.part = %(part)s::smallint
UNION ALL
SELECT floor(extract(epoch FROM scheduled_for) * 1000)::bigint, attempt_group, NULL,
    true
FROM (
    SELECT scheduled_for, attempt_group FROM chrono_timer
    WHERE part = %(part)s::smallint AND job_id = %(job)s::uuid AND kind <> 1
        AND kind <> 4 AND ref >= %(low)s::uuid AND ref < %(high)s::uuid
    UNION ALL
    SELECT scheduled_for, attempt_group FROM chrono_timer_far
    WHERE part = %(part)s::smallint AND job_id = %(job)s::uuid AND kind <> 1
        AND kind <> 4 AND ref >= %(low)s::uuid AND ref < %(high)s::uuid
) t
UNION ALL
SELECT floor(extract(epoch FROM scheduled_for) * 1000)::bigint, attempt_group, NULL,
    false
FROM chrono_occurrence
WHERE part = %(part)s::smallint AND job_id = %(job)s::uuid
    AND scheduled_for >= to_timestamp(%(start)s::bigint / 1000.0::float8)
    AND scheduled_for < to_timestamp(%(end)s::bigint / 1000.0::float8)
    AND outcome = 2 AND attempt_group > 0
ORDER BY 1, 2
