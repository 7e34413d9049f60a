-- List circuits by which somebody may be let in: probes that are due, ramps.
-- writes: nothing
-- index: chrono_target_shut, chrono_blocked_gate
--
-- One that is open, and for which nothing waits, has nobody to probe it.
SELECT tenant, name, state, changed_at, let_in FROM chrono_target t
WHERE state <> 1 AND (state = 4 OR (
    probe_at <= coalesce(
        to_timestamp(%(now)s::bigint / 1000.0::float8), clock_timestamp())
    AND EXISTS (
        SELECT FROM chrono_blocked b
        WHERE b.gate = 'circuit_open/' || t.tenant || '/' || t.name
            AND b.reason NOT IN (1, 2, 31)
    )
))
ORDER BY tenant, name LIMIT %(limit)s::integer
