-- Name those of some runs that are nowhere, in one snapshot.
-- writes: nothing
-- index: chrono_run_pkey, chrono_lease_pkey, chrono_timer_waiting
WITH asked AS MATERIALIZED (
    SELECT a.run, a.part FROM unnest(%(runs)s::uuid[], %(parts)s::smallint[])
        AS a (run, part)
), live AS MATERIALIZED (
    SELECT run_id FROM chrono_ready WHERE run_id = ANY(%(runs)s::uuid[])
)
SELECT a.run FROM asked a
WHERE a.run NOT IN (SELECT run_id FROM live) AND (
    SELECT true FROM chrono_run WHERE id = a.run AND part = a.part LIMIT 1
) IS NOT TRUE AND (
    SELECT true FROM chrono_run_kept WHERE id = a.run AND part = a.part LIMIT 1
) IS NOT TRUE AND (
    SELECT true FROM chrono_lease WHERE run_id = a.run AND part = a.part LIMIT 1
) IS NOT TRUE AND (
    SELECT true FROM chrono_timer
    WHERE part = a.part AND ref = a.run AND kind <> 1 LIMIT 1
) IS NOT TRUE AND (
    SELECT true FROM chrono_timer_far
    WHERE part = a.part AND ref = a.run AND kind <> 1 LIMIT 1
) IS NOT TRUE AND (
    SELECT true FROM chrono_parked WHERE run_id = a.run AND part = a.part LIMIT 1
) IS NOT TRUE AND (
    SELECT true FROM chrono_blocked WHERE run_id = a.run AND part = a.part LIMIT 1
) IS NOT TRUE
