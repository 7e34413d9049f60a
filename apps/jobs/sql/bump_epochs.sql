-- Raise the epoch of partitions: whatever a leader has in memory of them is now old.
-- writes: partition
-- locks: partition rows in id order FOR UPDATE
-- index: chrono_partition_pkey
--
-- Locked by the sorted CTE, never by the update: two updates lock in scan order and
-- meet in deadlocks. A fire in flight holds FOR SHARE and is waited for.
WITH locked AS MATERIALIZED (
    SELECT id FROM chrono_partition
    WHERE id = ANY(%(parts)s::smallint[]) ORDER BY id FOR UPDATE
)
UPDATE chrono_partition p SET epoch = p.epoch + 1
FROM locked l WHERE p.id = l.id
RETURNING p.id, p.epoch
