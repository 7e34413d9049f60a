-- Find rows in the default leaves, where nothing should ever be.
-- writes: nothing
SELECT 'chrono_occurrence_default', count(*) || ' rows'
FROM chrono_occurrence_default HAVING count(*) > 0
UNION ALL
SELECT 'chrono_run_default', count(*) || ' rows'
FROM chrono_run_default HAVING count(*) > 0
UNION ALL
SELECT 'chrono_attempt_default', count(*) || ' rows'
FROM chrono_attempt_default HAVING count(*) > 0
