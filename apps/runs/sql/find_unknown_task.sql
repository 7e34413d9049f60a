-- Find the task of a run where workers ask for its queue and none of them knows it.
-- writes: nothing
-- index: chrono_job_revision_key
--
-- A worker of an earlier release does not say what it knows.
SELECT r.target ->> 'name', coalesce(%(queue)s::text, r.queue)
FROM chrono_job_revision r
WHERE r.job_id = %(job)s::uuid AND r.revision = %(revision)s::integer
    AND r.target ->> 'kind' = 'task' AND NOT (
        SELECT bool_or(w.tasks IS NULL OR r.target ->> 'name' = ANY(w.tasks))
        FROM chrono_worker w
        WHERE NOT w.dead AND NOT w.swept AND NOT w.alone AND w.stopped_at IS NULL
            AND coalesce(%(queue)s::text, r.queue) = ANY(w.queues)
            AND w.beat_at > clock_timestamp() - make_interval(
                secs => %(ttl)s::bigint / 1000.0::float8)
    )
