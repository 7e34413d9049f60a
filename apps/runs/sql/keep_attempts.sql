-- Copy the failed attempts of a day whose run is kept to where they are kept longer.
-- writes: attempt_kept
INSERT INTO chrono_attempt_kept SELECT a.* FROM {leaf} a
WHERE EXISTS (
        SELECT FROM chrono_run_kept k WHERE k.id = a.run_id AND k.part = a.part)
    OR EXISTS (
        SELECT FROM chrono_run r
        WHERE r.id = a.run_id AND r.part = a.part AND r.state <> 1)
ON CONFLICT DO NOTHING
