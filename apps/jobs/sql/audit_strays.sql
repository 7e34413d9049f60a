-- Find rows in the default leaves, where nothing should ever be.
-- writes: nothing
--
-- But for occurrences that a person skipped before their day had a leaf.
SELECT 'chrono_occurrence_default', count(*) || ' rows'
FROM chrono_occurrence_default
WHERE NOT (
    outcome = 2 AND reason = 18 AND decided_at < scheduled_for - interval '2 days'
)
HAVING count(*) > 0
UNION ALL
SELECT 'chrono_run_default', count(*) || ' rows'
FROM chrono_run_default HAVING count(*) > 0
UNION ALL
SELECT 'chrono_attempt_default', count(*) || ' rows'
FROM chrono_attempt_default HAVING count(*) > 0
