-- Close a circuit for which nothing waits any more; have everybody look anew.
-- writes: target dispatch_state
-- locks: the target's row, then the dispatch state
-- index: chrono_target_pkey, chrono_blocked_gate (gate, due_at, run_id)
WITH closed AS (
    UPDATE chrono_target t SET state = 1, failures = 0, let_in = 0,
        changed_at = coalesce(
            to_timestamp(%(now)s::bigint / 1000.0::float8), clock_timestamp())
    WHERE t.tenant = %(tenant)s::integer AND t.name = %(name)s::text COLLATE "C"
        AND t.state = 4
        AND NOT EXISTS (
            SELECT FROM chrono_blocked b
            WHERE b.gate = %(gate)s::text AND b.reason NOT IN (1, 2, 31)
        )
    RETURNING tenant
)
UPDATE chrono_dispatch_state SET gates = gates + 1
WHERE id = 1 AND EXISTS (SELECT FROM closed)
RETURNING gates
