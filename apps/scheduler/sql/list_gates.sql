-- List the gates behind which runs of several jobs wait, from one on.
-- writes: nothing
-- index: chrono_blocked_gate (gate, due_at, run_id)
--
-- Steps from gate to gate along the index, past all the runs behind one.
WITH RECURSIVE step AS (
    (
        SELECT gate, 1 AS depth FROM chrono_blocked
        WHERE reason NOT IN (1, 2, 31) AND gate > %(after)s::text
        ORDER BY gate LIMIT 1
    )
    UNION ALL
    SELECT b.gate, s.depth + 1
    FROM step s CROSS JOIN LATERAL (
        SELECT gate FROM chrono_blocked
        WHERE reason NOT IN (1, 2, 31) AND gate > s.gate
        ORDER BY gate LIMIT 1
    ) b
    WHERE s.depth < %(limit)s::integer
)
SELECT gate FROM step
