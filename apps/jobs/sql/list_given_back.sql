-- List jobs to which late occurrences that were skipped gave runs back.
-- writes: given_back
-- index: chrono_job_pkey
--
-- The table is nearly always empty. Rows of jobs that are deleted, or have no number of
-- runs any more, are of no use.
WITH useless AS (
    DELETE FROM chrono_given_back g USING chrono_job j
    WHERE j.id = g.job_id AND (j.deleted_at IS NOT NULL OR j.remaining_runs IS NULL)
)
SELECT DISTINCT g.job_id FROM chrono_given_back g JOIN chrono_job j ON j.id = g.job_id
WHERE j.deleted_at IS NULL AND j.remaining_runs IS NOT NULL
ORDER BY g.job_id LIMIT %(limit)s::integer
