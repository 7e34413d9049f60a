-- Lock jobs against other edits, in the order of their ids.
-- writes: nothing
-- locks: job rows in id order FOR UPDATE
-- index: chrono_job_pkey
--
-- Read them in a later statement: after a wait this one would still join the revision
-- that was in force when it began.
SELECT id FROM chrono_job
WHERE id = ANY(%(jobs)s::uuid[])
    AND (%(tenant)s::integer IS NULL OR tenant = %(tenant)s::integer)
ORDER BY id FOR UPDATE
