-- Load how often the process of runs died under them, where it did.
-- writes: nothing
-- index: chrono_death_pkey
SELECT d.run_id, d.deaths
FROM unnest(%(parts)s::smallint[], %(runs)s::uuid[]) AS r (part, run)
CROSS JOIN LATERAL (
    SELECT run_id, deaths FROM chrono_death
    WHERE run_id = r.run AND part = r.part OFFSET 0
) d
