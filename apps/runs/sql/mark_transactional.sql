-- Write down that an execution's effects are in the transaction that settles its run.
-- writes: lease
-- moves: nothing
-- index: chrono_lease_pkey
--
-- Before that transaction, which must not hold the lease for long.
UPDATE chrono_lease SET transactional = true
WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint AND token = %(token)s::uuid
