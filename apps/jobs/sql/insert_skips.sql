-- Write decided occurrences that have no run, with their reason.
-- writes: occurrence
-- moves: scheduled -> skipped
-- index: chrono_occurrence_pkey
--
-- Fence 0: not fired by a leader, but decided by an edit under its locks.
INSERT INTO chrono_occurrence (
    scheduled_for, job_id, run_id, fence, version, revision, part, outcome, kind,
    reason, occurrences, last_scheduled_for
)
SELECT to_timestamp(d.scheduled_for / 1000.0::float8)::timestamptz(3), d.job_id,
    d.run_id, 0, d.version, d.revision, d.part, 2, 1, d.reason,
    CASE WHEN d.last_for > 0 THEN d.count END,
    to_timestamp(nullif(d.last_for, 0) / 1000.0::float8)::timestamptz(3)
FROM unnest(
    %(scheduled_for)s::bigint[], %(jobs)s::uuid[], %(runs)s::uuid[],
    %(versions)s::integer[], %(revisions)s::integer[], %(parts)s::smallint[],
    %(reasons)s::smallint[], %(counts)s::integer[], %(last_for)s::bigint[]
) AS d (
    scheduled_for, job_id, run_id, version, revision, part, reason, count, last_for
)
ON CONFLICT DO NOTHING
