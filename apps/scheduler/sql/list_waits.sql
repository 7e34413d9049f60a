-- Name the sessions whose locks a session waits for right now.
-- writes: nothing
SELECT blocking.pid, coalesce(b.application_name, ''),
    floor(extract(epoch FROM clock_timestamp() - b.xact_start) * 1000)::bigint
FROM pg_stat_activity w
CROSS JOIN LATERAL unnest(pg_blocking_pids(w.pid)) AS blocking (pid)
LEFT JOIN pg_stat_activity b ON b.pid = blocking.pid
WHERE w.pid = %(pid)s::integer AND w.wait_event_type = 'Lock'
