-- List what is wrong with a job now.
-- writes: nothing
-- index: chrono_breach_pkey
SELECT kind, run_id, floor(extract(epoch FROM since) * 1000)::bigint, detail
FROM chrono_breach WHERE job_id = %(job)s::uuid
ORDER BY kind, run_id LIMIT %(limit)s::integer
