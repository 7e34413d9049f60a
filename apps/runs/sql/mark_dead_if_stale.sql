-- Mark workers dead whose beat is still too old once their row is locked.
-- writes: worker
-- locks: worker rows in id order FOR UPDATE
WITH locked AS MATERIALIZED (
    SELECT id FROM chrono_worker
    WHERE id = ANY(%(workers)s::uuid[]) ORDER BY id FOR UPDATE
)
UPDATE chrono_worker w SET dead = true
FROM locked l
WHERE w.id = l.id AND NOT w.dead AND w.beat_at NOT BETWEEN
    clock_timestamp() - %(ttl)s::bigint * interval '1 ms'
    AND clock_timestamp() + %(ttl)s::bigint * interval '1 ms'
RETURNING w.id
