-- Bound each wait and each statement from here to the end of this transaction.
-- writes: nothing
--
-- For what holds chrono_job against writes: edits wait for it with their partitions
-- locked. The wait is the shorter one, so that its end is told from a long statement's.
SELECT set_config('lock_timeout', '200', true),
    set_config('statement_timeout', '250', true)
