-- Find jobs of a partition with another number of timers than their state asks for.
-- writes: nothing
-- index: chrono_timer_key, chrono_job_epoch
--
-- One timer of the present version where a job is enabled, none where it is not. The
-- caller leaves out enabled jobs without a timer whose schedule is over.
SELECT 'job ' || j.id, count(t.ref), j.paused, j.deleted_at IS NOT NULL, j.id,
    j.schedule, floor(extract(epoch FROM greatest(j.activated_at, (
        SELECT coalesce(o.last_scheduled_for, o.scheduled_for)
        FROM chrono_occurrence o
        WHERE o.part = %(part)s::smallint AND o.job_id = j.id AND o.attempt_group = 0
        ORDER BY o.scheduled_for DESC LIMIT 1
    ))) * 1000)::bigint
FROM (
    SELECT j.*, r.schedule::text AS schedule FROM chrono_job j
    JOIN chrono_job_revision r ON r.job_id = j.id AND r.revision = j.revision
    WHERE j.part = %(part)s::smallint
) j
LEFT JOIN (
    SELECT ref, version FROM chrono_timer WHERE part = %(part)s::smallint AND kind = 1
    UNION ALL
    SELECT ref, version FROM chrono_timer_far
    WHERE part = %(part)s::smallint AND kind = 1
) t ON t.ref = j.id AND t.version >= j.version
GROUP BY j.id, j.paused, j.deleted_at, j.activated_at, j.schedule
HAVING count(t.ref) <> CASE
    WHEN j.paused OR j.deleted_at IS NOT NULL THEN 0 ELSE 1
END
