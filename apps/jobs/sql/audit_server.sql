-- Tell the database's clock in epoch milliseconds, and whether it keeps commit times.
-- writes: nothing
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    current_setting('track_commit_timestamp') = 'on'
