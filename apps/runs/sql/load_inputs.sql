-- Read the inputs of those of these runs that have one of their own.
-- writes: nothing
-- index: chrono_run_input_pkey
SELECT i.run_id, i.payload
FROM unnest(%(parts)s::smallint[], %(runs)s::uuid[]) AS w (part, run_id)
JOIN chrono_run_input i ON i.part = w.part AND i.run_id = w.run_id
