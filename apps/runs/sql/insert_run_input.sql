-- Write what a run has of its own in place of its revision's: payload, priority, queue.
-- writes: run_input
--
-- And the concurrency key that its payload fills, where its revision's key has holes.
-- In the transaction that writes the run's timer.
INSERT INTO chrono_run_input (part, run_id, payload, priority, queue, concurrency_key)
VALUES (
    %(part)s::smallint, %(run)s::uuid, %(payload)s::jsonb, %(priority)s::smallint,
    %(queue)s::text, %(key)s::text
)
