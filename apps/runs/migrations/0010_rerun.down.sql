SET LOCAL lock_timeout = '2s';
DELETE FROM chrono_run_input WHERE num_nonnulls(payload, priority) = 0;
ALTER TABLE chrono_run_input
    DROP COLUMN queue,
    DROP CONSTRAINT IF EXISTS chrono_run_input_some,
    ADD CONSTRAINT chrono_run_input_some CHECK (num_nonnulls(payload, priority) > 0);
ALTER TABLE chrono_dead_letter
    DROP COLUMN closed,
    DROP COLUMN closed_at,
    DROP COLUMN closed_by,
    DROP COLUMN note,
    DROP COLUMN noted_at,
    DROP COLUMN noted_by;
DROP TABLE chrono_rerun;
