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
FROM looked l
LEFT JOIN chrono_job j ON j.id = l.job_id AND j.revision = l.revision
    AND NOT j.paused AND j.deleted_at IS NULL
LEFT JOIN chrono_watched w ON w.job_id = l.job_id
LEFT JOIN chrono_breach b ON b.job_id = l.job_id AND b.kind = 3
    AND b.run_id = '00000000-0000-0000-0000-000000000000'
ORDER BY l.job_id, l.revision
