-- Find runs that are in two places at once, in one snapshot.
-- writes: nothing
--
-- A cancelled run may still lie in ready until upkeep takes it out: it is withdrawn.
WITH live AS MATERIALIZED (
    SELECT ref AS id, part, 'timer' AS place FROM chrono_timer WHERE kind <> 1
    UNION ALL SELECT ref, part, 'timer' FROM chrono_timer_far WHERE kind <> 1
    UNION ALL SELECT run_id, part, 'ready' FROM chrono_ready
    UNION ALL SELECT run_id, part, 'lease' FROM chrono_lease
    UNION ALL SELECT run_id, part, 'parked' FROM chrono_parked
    UNION ALL SELECT run_id, part, 'blocked' FROM chrono_blocked
)
SELECT 'run ' || id, 'is in ' || string_agg(place, ' and ' ORDER BY place)
FROM live GROUP BY id, part HAVING count(*) > 1
UNION ALL
SELECT 'run ' || l.id, 'is settled and in ' || l.place
FROM live l JOIN chrono_run r ON r.id = l.id AND r.part = l.part
WHERE NOT EXISTS (
    SELECT FROM chrono_withdrawn w WHERE w.run_id = l.id AND w.part = l.part
)
LIMIT %(limit)s::integer
