-- Flag a run in execution as cancelled; its worker hears of it with its next beat.
-- writes: lease
-- moves: nothing
-- index: chrono_lease_pkey
UPDATE chrono_lease SET cancel = true, cancel_reason = %(reason)s::smallint
WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
RETURNING run_id
