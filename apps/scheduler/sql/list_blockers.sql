-- Name who keeps Chrono's sessions waiting for a lock for longer than a while.
-- writes: nothing
--
-- Whom a session waits for is asked only of those that wait, which is hardly ever one.
SELECT w.application_name, blocking.pid, coalesce(b.application_name, ''),
    floor(extract(epoch FROM clock_timestamp() - b.xact_start) * 1000)::bigint
FROM pg_stat_activity w
CROSS JOIN LATERAL unnest(pg_blocking_pids(w.pid)) AS blocking (pid)
LEFT JOIN pg_stat_activity b ON b.pid = blocking.pid
WHERE w.wait_event_type = 'Lock' AND w.datname = current_database()
    AND starts_with(w.application_name, 'chrono')
    AND w.query_start < clock_timestamp() - %(after)s::bigint * interval '1 ms'
