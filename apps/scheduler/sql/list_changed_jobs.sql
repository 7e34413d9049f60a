-- List the jobs of a partition that changed after an epoch.
-- writes: nothing
-- index: chrono_job_epoch
SELECT id FROM chrono_job
WHERE part = %(part)s::smallint AND epoch > %(epoch)s::bigint
