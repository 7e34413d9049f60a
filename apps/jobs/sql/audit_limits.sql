-- Bound what a batch of the audit costs others, for this transaction alone.
-- writes: nothing
--
-- The plans are made for the arrays at hand; compiling them would cost more than they.
SELECT set_config('statement_timeout', %(timeout)s::text, true),
    set_config('lock_timeout', '1000', true),
    set_config('idle_in_transaction_session_timeout', '60000', true),
    set_config('plan_cache_mode', 'force_custom_plan', true),
    set_config('jit', 'off', true)
