-- Read the priorities, queues and concurrency keys that these runs have of their own.
-- writes: nothing
-- index: chrono_run_input_pkey
SELECT i.run_id, i.priority, i.queue, i.concurrency_key
FROM unnest(%(parts)s::smallint[], %(runs)s::uuid[]) AS w (part, run_id)
JOIN chrono_run_input i ON i.part = w.part AND i.run_id = w.run_id
WHERE i.priority IS NOT NULL OR i.queue IS NOT NULL
    OR i.concurrency_key IS NOT NULL
