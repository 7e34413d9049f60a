DELETE FROM chrono_run_input WHERE payload IS NULL;
ALTER TABLE chrono_run_input
    DROP CONSTRAINT chrono_run_input_some,
    DROP COLUMN priority,
    ALTER COLUMN payload SET NOT NULL;
