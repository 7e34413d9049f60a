-- Of some jobs with max_time_since_success, read when their last success was known.
-- writes: nothing
-- index: chrono_job_revision_watched, chrono_watched_pkey, chrono_breach_pkey
--
-- Earlier revisions lie in the index, too, and are passed over. A row without a tenant
-- is a job that is paused or deleted, or has another revision by now.
WITH looked AS MATERIALIZED (
    SELECT job_id, revision, (policy -> 'max_time_since_success')::text AS bound
    FROM chrono_job_revision
    WHERE policy ? 'max_time_since_success'
        AND (job_id, revision) > (%(job)s::uuid, %(revision)s::integer)
    ORDER BY job_id, revision LIMIT %(limit)s::integer
)
SELECT l.job_id, l.revision, j.tenant, j.part,
    floor(extract(epoch FROM greatest(j.created_at, j.activated_at)) * 1000)::bigint,
    floor(extract(epoch FROM w.succeeded_at) * 1000)::bigint,
    floor(extract(epoch FROM w.looked_at) * 1000)::bigint,
    floor(extract(epoch FROM b.since) * 1000)::bigint, l.bound
FROM looked l LEFT JOIN LATERAL (
    SELECT tenant, part, created_at, activated_at FROM chrono_job
    WHERE id = l.job_id AND revision = l.revision AND NOT paused
        AND deleted_at IS NULL OFFSET 0
) j ON true
LEFT JOIN LATERAL (
    SELECT succeeded_at, looked_at FROM chrono_watched WHERE job_id = l.job_id OFFSET 0
) w ON true
LEFT JOIN LATERAL (
    SELECT since FROM chrono_breach WHERE job_id = l.job_id AND kind = 3
        AND run_id = '00000000-0000-0000-0000-000000000000' OFFSET 0
) b ON true
ORDER BY l.job_id, l.revision
