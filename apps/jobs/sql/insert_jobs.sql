-- Write new jobs; return those whose key was free.
-- writes: job
-- index: chrono_job_key
--
-- No tag has a space in it: those of a job come as one text.
INSERT INTO chrono_job (
    id, tenant, key, name, tags, part, version, revision, epoch, activated_at, paused,
    pause_note, paused_by, remaining_runs, created_at, updated_at
)
SELECT d.id, %(tenant)s::integer, d.key, d.name, string_to_array(d.tags, ' '), d.part,
    1, 1, 0,
    to_timestamp(d.activated_at / 1000.0::float8)::timestamptz(3), d.paused, '',
    d.paused_by, d.remaining_runs,
    to_timestamp(%(now)s::bigint / 1000.0::float8),
    to_timestamp(%(now)s::bigint / 1000.0::float8)
FROM unnest(
    %(ids)s::uuid[], %(keys)s::text[], %(names)s::text[], %(tags)s::text[],
    %(parts)s::smallint[], %(activated_at)s::bigint[], %(paused)s::boolean[],
    %(paused_by)s::text[], %(remaining_runs)s::integer[]
) AS d (id, key, name, tags, part, activated_at, paused, paused_by, remaining_runs)
ORDER BY d.key
ON CONFLICT (tenant, key) WHERE deleted_at IS NULL DO NOTHING
RETURNING id
