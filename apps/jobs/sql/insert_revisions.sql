-- Write revisions of jobs; they never change.
-- writes: job_revision
INSERT INTO chrono_job_revision (
    job_id, revision, schedule, jitter_window, overlap_policy, queue, priority, target,
    payload, retry_policy, policy, created_at
)
SELECT d.job_id, d.revision, d.schedule, d.jitter_window, d.overlap_policy, d.queue,
    d.priority, d.target, d.payload, d.retry_policy, d.policy,
    to_timestamp(%(now)s::bigint / 1000.0::float8)
FROM unnest(
    %(jobs)s::uuid[], %(revisions)s::integer[], %(schedules)s::jsonb[],
    %(jitter_windows)s::bigint[], %(overlap_policies)s::text[], %(queues)s::text[],
    %(priorities)s::smallint[], %(targets)s::jsonb[], %(payloads)s::jsonb[],
    %(retry_policies)s::jsonb[], %(policies)s::jsonb[]
) AS d (
    job_id, revision, schedule, jitter_window, overlap_policy, queue, priority, target,
    payload, retry_policy, policy
)
