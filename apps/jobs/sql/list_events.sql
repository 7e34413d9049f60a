-- List what was noticed of a job, newest first, below a number.
-- writes: nothing
-- index: chrono_job_event_job
SELECT id, floor(extract(epoch FROM at) * 1000)::bigint, kind, over, run_id, detail
FROM chrono_job_event
WHERE job_id = %(job)s::uuid AND id < %(before)s::bigint
ORDER BY id DESC LIMIT %(limit)s::integer
