-- Bound what a stopped or stuck edit costs others, for this transaction alone.
-- writes: nothing
--
-- An edit that stops between its lock and its commit stops its partitions.
SELECT set_config('idle_in_transaction_session_timeout', '2000', true),
    set_config('lock_timeout', '2000', true),
    set_config('statement_timeout', '10000', true)
