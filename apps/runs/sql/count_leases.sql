-- Count the leases of some workers, and all.
-- writes: nothing
SELECT count(*) FILTER (WHERE worker = ANY(%(workers)s::uuid[])), count(*)
FROM chrono_lease
