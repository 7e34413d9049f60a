-- Read what a leader must know of these revisions of jobs.
-- writes: nothing
-- index: chrono_job_revision_key
--
-- JSON comes as text: many jobs have the same, and each text is read once.
SELECT r.job_id, r.revision, r.schedule::text, r.jitter_window, r.overlap_policy,
    r.queue, r.priority, r.policy::text
FROM unnest(%(jobs)s::uuid[], %(revisions)s::integer[]) AS w (job_id, revision)
JOIN chrono_job_revision r ON r.job_id = w.job_id AND r.revision = w.revision
