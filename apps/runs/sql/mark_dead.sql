-- Mark workers dead whose process is known to have ended.
-- writes: worker
-- locks: worker rows in id order FOR UPDATE
WITH locked AS MATERIALIZED (
    SELECT id FROM chrono_worker
    WHERE id = ANY(%(workers)s::uuid[]) ORDER BY id FOR UPDATE
)
UPDATE chrono_worker w SET dead = true, crashed = true
FROM locked l
WHERE w.id = l.id AND NOT w.dead
