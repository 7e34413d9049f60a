-- Delete what is past its retention, a bounded number a statement.
-- writes: job_event
-- index: chrono_job_event_pkey
--
-- Numbers rise with time: of the lowest ones those go that are too old.
DELETE FROM chrono_job_event WHERE id = ANY(ARRAY(
    SELECT id FROM (
        SELECT id, at FROM chrono_job_event ORDER BY id LIMIT %(limit)s::integer
    ) AS first WHERE at < to_timestamp(%(before)s::bigint / 1000.0::float8)
))
