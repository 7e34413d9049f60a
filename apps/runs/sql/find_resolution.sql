-- Read a person's verdict on a run.
-- writes: nothing
-- index: chrono_resolution_pkey
SELECT state, actor, note, floor(extract(epoch FROM resolved_at) * 1000)::bigint
FROM chrono_resolution WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint
