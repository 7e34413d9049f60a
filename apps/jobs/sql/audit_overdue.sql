-- Find timers that were due for more than two seconds in partitions that are led (16).
-- writes: nothing
-- index: chrono_timer_key
--
-- Whoever leads a partition holds its advisory lock; a leader of the last ten seconds
-- may still be loading. What an edit left behind waits for nobody.
WITH led AS MATERIALIZED (
    SELECT p.id FROM chrono_partition p
    WHERE p.taken_at < clock_timestamp() - interval '10 seconds' AND p.id IN (
        SELECT objid::bigint FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 2 AND granted
            AND classid = %(class)s::bigint AND database = (
                SELECT oid FROM pg_database WHERE datname = current_database())
    )
)
SELECT t.job_id, t.ref, t.part, floor(extract(epoch FROM t.due_at) * 1000)::bigint,
    extract(epoch FROM clock_timestamp() - t.due_at)::integer
FROM led CROSS JOIN LATERAL (
    SELECT * FROM chrono_timer
    WHERE part = led.id AND due_at < clock_timestamp() - interval '2 seconds'
    UNION ALL
    SELECT * FROM chrono_timer_far
    WHERE part = led.id AND due_at < clock_timestamp() - interval '2 seconds'
) t
LEFT JOIN chrono_job j ON j.id = t.job_id
WHERE (t.kind = 1 AND t.version < j.version) IS NOT TRUE
    AND (%(tenant)s::integer IS NULL OR j.tenant = %(tenant)s::integer)
    AND (%(jobs)s::uuid[] IS NULL OR t.job_id = ANY(%(jobs)s::uuid[]))
LIMIT %(limit)s::integer
