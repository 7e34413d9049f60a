-- Tell the leaders of these partitions that timers or jobs changed; a hint, no promise.
-- writes: nothing
SELECT pg_notify('chrono_jobs', %(partitions)s::text)
