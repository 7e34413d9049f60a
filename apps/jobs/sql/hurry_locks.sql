-- Bound the waits for locks to what a stalled fire does not show, in this transaction.
-- writes: nothing
SELECT set_config('lock_timeout', '250', true)
