-- Flag a run in execution as cancelled; its worker hears of it with its next beat.
-- writes: lease
-- moves: nothing
-- index: chrono_lease_pkey
--
-- The first reason stays, and since when it is told.
UPDATE chrono_lease SET cancel = true,
    cancel_reason = CASE WHEN cancel THEN cancel_reason ELSE %(reason)s::smallint END,
    cancel_at = coalesce(cancel_at, clock_timestamp())
WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
RETURNING run_id
