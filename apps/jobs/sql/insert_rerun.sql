-- Link a finished run to the one that runs its occurrence again; close its dead letter.
-- writes: rerun dead_letter
-- index: chrono_dead_letter_pkey
WITH closed AS (
    UPDATE chrono_dead_letter
    SET closed = 1, closed_at = clock_timestamp(), closed_by = %(by)s::text
    WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
)
INSERT INTO chrono_rerun (part, run_id, rerun_id, made_by)
VALUES (%(part)s::smallint, %(run)s::uuid, %(rerun)s::uuid, %(by)s::text)
