-- A run may differ from its revision in its priority, too. What a run has not of its own
-- is NULL; a payload of its own that is null is a JSON null. The table is nearly empty.
SET LOCAL lock_timeout = '2s';
ALTER TABLE chrono_run_input
    ALTER COLUMN payload DROP NOT NULL,
    ADD COLUMN priority smallint,
    ADD CONSTRAINT chrono_run_input_some CHECK (num_nonnulls(payload, priority) > 0);
