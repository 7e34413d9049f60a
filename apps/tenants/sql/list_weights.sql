-- List the tenants whose share is not the usual one.
-- writes: nothing
SELECT id, weight FROM chrono_tenant WHERE weight <> 1
