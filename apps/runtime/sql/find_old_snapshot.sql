-- Find the session whose snapshot has kept dead rows from being cleaned up for longest.
-- Those of other databases are in nobody's way here.
-- writes: nothing
SELECT pid, application_name, left(query, 200),
    floor(extract(epoch FROM clock_timestamp() - xact_start) * 1000)::bigint
FROM pg_stat_activity
WHERE backend_type = 'client backend' AND backend_xmin IS NOT NULL
    AND datname = current_database()
    AND xact_start < clock_timestamp() - %(older)s::bigint * interval '1 ms'
ORDER BY xact_start LIMIT 1
