-- Read what these revisions of jobs call, for who looks at gates of targets.
-- writes: nothing
-- index: chrono_job_revision_key
SELECT r.job_id, r.revision, r.target ->> 'kind', r.target ->> 'name', r.target ->> 'url'
FROM unnest(%(jobs)s::uuid[], %(revisions)s::integer[]) AS w (job_id, revision)
JOIN chrono_job_revision r ON r.job_id = w.job_id AND r.revision = w.revision
