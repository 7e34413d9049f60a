-- Count the occurrences of a day that a person skipped before it had a leaf.
-- writes: nothing
SELECT count(*) FROM {leaf}
WHERE outcome = 2 AND reason = 18 AND decided_at < scheduled_for - interval '2 days'
