-- Tell whether any run is withdrawn at all.
-- writes: nothing
SELECT EXISTS (SELECT FROM chrono_withdrawn)
