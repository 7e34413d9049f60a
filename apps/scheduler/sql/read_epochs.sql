-- Tell the fence, term and epochs of these partitions.
-- writes: nothing
SELECT id, fence, term, epoch, full_epoch FROM chrono_partition
WHERE id = ANY(%(parts)s::smallint[])
