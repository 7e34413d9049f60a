-- Have a run that waits in a timer table come due at another instant.
-- writes: timer | timer_far
-- moves: retrying | scheduled -> retrying | scheduled
-- index: {timers} (part, ref) WHERE kind <> 1
--
-- Deleted and written anew: a fire that waited for an update in place would fire the row
-- it had read. It waits for a fire that has the row, and then finds it no more.
WITH taken AS MATERIALIZED (
    SELECT tableoid AS bucket, ctid AS tid FROM {timers}
    WHERE part = %(part)s::smallint AND ref = %(run)s::uuid AND kind <> 1
    FOR UPDATE
), moved AS (
    DELETE FROM {timers} t USING taken k
    WHERE t.tableoid = k.bucket AND t.ctid = k.tid
        AND t.part = %(part)s::smallint AND t.ref = %(run)s::uuid AND t.kind <> 1
    RETURNING t.*
), due AS MATERIALIZED (
    SELECT to_timestamp(%(due)s::bigint / 1000.0::float8)::timestamptz(3) AS at
), near AS (
    INSERT INTO chrono_timer (
        due_at, scheduled_for, ref, job_id, prev, version, revision, attempt_group,
        part, kind, attempt, remaining
    )
    SELECT due.at, scheduled_for, ref, job_id, prev, version, revision, attempt_group,
        part, kind, attempt, remaining
    FROM moved CROSS JOIN due
    WHERE due.at < to_timestamp(%(horizon)s::bigint / 1000.0::float8)
    RETURNING ref
), far AS (
    INSERT INTO chrono_timer_far (
        due_at, scheduled_for, ref, job_id, prev, version, revision, attempt_group,
        part, kind, attempt, remaining
    )
    SELECT due.at, scheduled_for, ref, job_id, prev, version, revision, attempt_group,
        part, kind, attempt, remaining
    FROM moved CROSS JOIN due
    WHERE due.at >= to_timestamp(%(horizon)s::bigint / 1000.0::float8)
    RETURNING ref
)
SELECT ref FROM near UNION ALL SELECT ref FROM far
