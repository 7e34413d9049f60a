-- Read the schedules of revisions of jobs, with their number of runs if they have one.
-- writes: nothing
-- index: chrono_job_revision_key
SELECT r.job_id, r.revision, (r.schedule || jsonb_build_object(
    'remaining_runs', r.policy -> 'remaining_runs'))::text
FROM unnest(%(jobs)s::uuid[], %(revisions)s::integer[]) AS a (job, revision)
JOIN chrono_job_revision r ON r.job_id = a.job AND r.revision = a.revision
