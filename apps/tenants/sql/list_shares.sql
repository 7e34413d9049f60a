-- List the tenants whose share is not the usual one, or who have a quota.
-- writes: nothing
SELECT id, weight, max_running, max_starts FROM chrono_tenant
WHERE weight <> 1 OR max_running IS NOT NULL OR max_starts IS NOT NULL
