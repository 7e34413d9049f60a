-- Read behind which gate a run waits.
-- writes: nothing
-- index: chrono_blocked_pkey
SELECT gate FROM chrono_blocked
WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
