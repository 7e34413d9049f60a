-- Tell the database's time in epoch milliseconds.
-- writes: nothing
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8
