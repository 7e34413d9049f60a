-- Tell whether any run counts against an overlap bound besides the schedule's own.
-- writes: nothing
SELECT EXISTS (SELECT FROM chrono_slot)
