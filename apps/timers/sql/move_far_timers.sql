-- Move far timers that have a bucket by now, a bounded number a statement.
-- writes: timer timer_far
-- moves: timer_far -> timer
-- index: chrono_timer_far (part, due_at, ref, kind, version)
--
-- One statement, so that no row is ever absent; rows that a fire or a cancel holds are
-- left for the next time. Walked by partition, since the key begins with it.
WITH chosen AS MATERIALIZED (
    SELECT f.tid FROM generate_series(0, 63) AS p CROSS JOIN LATERAL (
        SELECT t.ctid AS tid FROM chrono_timer_far t
        WHERE t.part = p
            AND t.due_at >= to_timestamp(%(first)s::bigint / 1000.0::float8)
            AND t.due_at < to_timestamp(%(horizon)s::bigint / 1000.0::float8)
        ORDER BY t.due_at LIMIT %(limit)s::integer
        FOR UPDATE SKIP LOCKED
    ) f LIMIT %(limit)s::integer
), moved AS (
    DELETE FROM chrono_timer_far WHERE ctid = ANY(ARRAY(SELECT tid FROM chosen))
    RETURNING *
)
INSERT INTO chrono_timer SELECT * FROM moved ON CONFLICT DO NOTHING
