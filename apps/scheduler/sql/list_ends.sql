-- Tell when these runs ended, of those that are settled.
-- writes: nothing
-- index: chrono_run_pkey, chrono_run_kept_pkey
SELECT id, floor(extract(epoch FROM finished_at) * 1000)::bigint
FROM chrono_run WHERE id = ANY(%(runs)s::uuid[])
UNION ALL
SELECT id, floor(extract(epoch FROM finished_at) * 1000)::bigint
FROM chrono_run_kept WHERE id = ANY(%(runs)s::uuid[])
