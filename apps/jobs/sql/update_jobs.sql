-- Write what an edit made of jobs, stamped with the new epoch of their partitions.
-- writes: job
-- locks: none; the rows are locked already
-- index: chrono_job_pkey
--
-- No tag has a space in it: those of a job come as one text.
UPDATE chrono_job j
SET name = d.name, tags = string_to_array(d.tags, ' '), version = d.version,
    revision = d.revision, epoch = d.epoch,
    activated_at = to_timestamp(d.activated_at / 1000.0::float8)::timestamptz(3),
    changes = j.changes + 1, paused = d.paused, pause_note = d.pause_note,
    paused_until = to_timestamp(
        nullif(d.paused_until, 0) / 1000.0::float8)::timestamptz(3),
    paused_by = d.paused_by,
    updated_at = to_timestamp(%(now)s::bigint / 1000.0::float8),
    remaining_runs = d.remaining_runs,
    deleted_at = CASE
        WHEN d.deleted THEN to_timestamp(%(now)s::bigint / 1000.0::float8)
    END
FROM unnest(
    %(ids)s::uuid[], %(names)s::text[], %(tags)s::text[], %(versions)s::integer[],
    %(revisions)s::integer[], %(epochs)s::bigint[], %(activated_at)s::bigint[],
    %(paused)s::boolean[], %(pause_notes)s::text[], %(paused_until)s::bigint[],
    %(paused_by)s::text[], %(deleted)s::boolean[],
    %(remaining_runs)s::integer[]
) AS d (
    id, name, tags, version, revision, epoch, activated_at, paused, pause_note,
    paused_until, paused_by, deleted, remaining_runs
)
WHERE j.id = d.id
