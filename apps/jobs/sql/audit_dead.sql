-- Find dead runs without an error or without their dead letter (invariant 11).
-- writes: nothing
-- index: chrono_run_not_success
SELECT 'run ' || r.id, CASE
    WHEN NOT EXISTS (
        SELECT FROM chrono_attempt a WHERE a.run_id = r.id AND a.part = r.part
    ) THEN 'is dead without an attempt that failed'
    ELSE 'is dead without a dead letter' END
FROM chrono_run r
WHERE r.state = 3 AND r.id >= %(since_id)s::uuid AND NOT (
    EXISTS (SELECT FROM chrono_attempt a WHERE a.run_id = r.id AND a.part = r.part)
    AND EXISTS (
        SELECT FROM chrono_dead_letter d WHERE d.run_id = r.id AND d.part = r.part
    )
)
LIMIT %(limit)s::integer
