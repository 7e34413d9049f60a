-- Tell the instant of an edit and the far horizon, both in epoch milliseconds.
-- writes: nothing
--
-- In an edit this comes after the lock on its partitions: nothing fires between the
-- instant and the commit.
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    floor(extract(epoch FROM horizon) * 1000)::bigint
FROM chrono_dispatch_state
