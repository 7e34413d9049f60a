-- Of these partitions, list those whose rows nobody holds right now.
-- writes: nothing
-- locks: partition rows in id order FOR UPDATE SKIP LOCKED, given back at once
-- index: chrono_partition_pkey
SELECT id FROM chrono_partition
WHERE id = ANY(%(parts)s::smallint[])
ORDER BY id FOR UPDATE SKIP LOCKED
