-- Tell where a run is now, in one snapshot: every table that can hold it, and history.
-- writes: nothing
SELECT 'lease', cancel, NULL::smallint FROM chrono_lease
WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
UNION ALL SELECT 'ready', false, NULL FROM chrono_ready WHERE run_id = %(run)s::uuid
UNION ALL SELECT 'timer', false, kind FROM chrono_timer
WHERE part = %(part)s::smallint AND ref = %(run)s::uuid AND kind <> 1
UNION ALL SELECT 'timer', false, kind FROM chrono_timer_far
WHERE part = %(part)s::smallint AND ref = %(run)s::uuid AND kind <> 1
UNION ALL SELECT 'parked', false, reason FROM chrono_parked
WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
UNION ALL SELECT 'blocked', false, reason FROM chrono_blocked
WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
UNION ALL SELECT 'run', false, state FROM chrono_run
WHERE id = %(run)s::uuid AND part = %(part)s::smallint
UNION ALL SELECT 'run', false, state FROM chrono_run_kept
WHERE id = %(run)s::uuid AND part = %(part)s::smallint
