-- Find fired occurrences of a partition whose run is nowhere, in one snapshot.
-- writes: nothing
-- index: chrono_occurrence_pkey, chrono_run_pkey
WITH unsettled AS MATERIALIZED (
    SELECT o.run_id, o.job_id FROM chrono_occurrence o
    WHERE o.part = %(part)s::smallint AND o.outcome = 1
        AND o.scheduled_for >= to_timestamp(%(since)s::bigint / 1000.0::float8)
        AND NOT EXISTS (
            SELECT FROM chrono_run r WHERE r.id = o.run_id AND r.part = o.part
        )
)
SELECT 'run ' || u.run_id, 'of job ' || u.job_id || ' was fired and is nowhere'
FROM unsettled u
WHERE u.run_id NOT IN (
    SELECT run_id FROM chrono_lease WHERE part = %(part)s::smallint
    UNION ALL SELECT run_id FROM chrono_ready WHERE part = %(part)s::smallint
    UNION ALL SELECT ref FROM chrono_timer
    WHERE part = %(part)s::smallint AND kind <> 1
    UNION ALL SELECT ref FROM chrono_timer_far
    WHERE part = %(part)s::smallint AND kind <> 1
    UNION ALL SELECT run_id FROM chrono_parked WHERE part = %(part)s::smallint
    UNION ALL SELECT run_id FROM chrono_blocked WHERE part = %(part)s::smallint
    UNION ALL SELECT id FROM chrono_run_kept WHERE part = %(part)s::smallint
)
LIMIT %(limit)s::integer
