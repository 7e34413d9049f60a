-- List when a tenant's living jobs fire, by id, newest first.
-- writes: nothing
-- index: chrono_job_living, chrono_job_revision_key
--
-- Paused ones, too, so that a batch always says where it ended.
SELECT j.id, j.paused, r.schedule::text, r.jitter_window
FROM (
    SELECT tenant, id, revision, paused FROM chrono_job
    WHERE tenant >= %(tenant)s::integer
        AND (tenant, id) < (%(tenant)s::integer, %(before)s::uuid)
        AND deleted_at IS NULL
    ORDER BY tenant DESC, id DESC LIMIT %(limit)s::integer
) j
CROSS JOIN LATERAL (
    SELECT schedule, jitter_window FROM chrono_job_revision
    WHERE job_id = j.id AND revision = j.revision LIMIT 1
) r
ORDER BY j.tenant DESC, j.id DESC
