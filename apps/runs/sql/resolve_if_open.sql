-- Write down a person's verdict on a run that is dead or unknown, unless there is one.
-- writes: resolution
-- moves: unknown | dead -> success | failed
-- index: chrono_run_pkey, chrono_run_kept_pkey, chrono_resolution_pkey
--
-- The run itself is never updated: whoever shows it looks here.
INSERT INTO chrono_resolution (run_id, part, state, actor, note)
SELECT %(run)s::uuid, %(part)s::smallint, %(state)s::smallint, %(actor)s::text,
    %(note)s::text
WHERE EXISTS (
    SELECT FROM chrono_run
    WHERE id = %(run)s::uuid AND part = %(part)s::smallint AND state IN (3, 6)
) OR EXISTS (
    SELECT FROM chrono_run_kept
    WHERE id = %(run)s::uuid AND part = %(part)s::smallint AND state IN (3, 6)
)
ON CONFLICT DO NOTHING
RETURNING run_id
