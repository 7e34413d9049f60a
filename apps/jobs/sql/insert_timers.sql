-- Plan occurrences: write timers that are not there yet.
-- writes: timer | timer_far
-- index: {timers} (part, due_at, ref, kind, version)
--
-- Rounded to the millisecond: far in the future a float8 of seconds is not exact.
INSERT INTO {timers} (
    due_at, scheduled_for, ref, job_id, prev, version, revision, part, kind,
    attempt_group, remaining
)
SELECT to_timestamp(d.due_at / 1000.0::float8)::timestamptz(3),
    to_timestamp(d.scheduled_for / 1000.0::float8)::timestamptz(3), d.ref, d.job_id,
    d.prev, d.version, d.revision, d.part, d.kind, d.attempt_group, d.remaining
FROM unnest(
    %(due_at)s::bigint[], %(scheduled_for)s::bigint[], %(refs)s::uuid[],
    %(jobs)s::uuid[], %(prevs)s::uuid[], %(versions)s::integer[],
    %(revisions)s::integer[], %(parts)s::smallint[], %(kinds)s::smallint[],
    %(groups)s::integer[], %(remaining)s::integer[]
) AS d (
    due_at, scheduled_for, ref, job_id, prev, version, revision, part, kind,
    attempt_group, remaining
)
ON CONFLICT DO NOTHING
