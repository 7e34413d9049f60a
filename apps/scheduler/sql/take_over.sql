-- Begin a term in each of these partitions: a higher fence, a new random term.
-- writes: partition
-- moves: nothing
-- locks: partition rows in id order FOR UPDATE
--
-- Run it on the session that holds the advisory locks and load in a later statement.
-- nextval keeps a fence from being handed out again after a rollback; it is drawn under
-- the row's lock, so fences and commits have one order.
WITH locked AS MATERIALIZED (
    SELECT id FROM chrono_partition
    WHERE id = ANY(%(parts)s::smallint[]) ORDER BY id FOR UPDATE
)
UPDATE chrono_partition p
SET fence = greatest(p.fence + 1, nextval('chrono_fence')), term = gen_random_uuid(),
    owner = %(owner)s, taken_at = clock_timestamp()
FROM locked l WHERE p.id = l.id
RETURNING p.id, p.fence, p.term, p.epoch
