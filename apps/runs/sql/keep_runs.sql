-- Copy the runs of a day that were no success to where they are kept longer.
-- writes: run_kept
INSERT INTO chrono_run_kept SELECT * FROM {leaf} WHERE state <> 1
ON CONFLICT DO NOTHING
