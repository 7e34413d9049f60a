-- Tell the size of each slice in bytes; an emptied and truncated one has 0.
-- writes: nothing
SELECT i, pg_relation_size(('chrono_ready_' || i)::regclass)
FROM generate_series(0, 7) AS i
