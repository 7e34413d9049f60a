-- List the runs of jobs that were fired last, each with how and when it ended.
-- writes: nothing
-- index: chrono_occurrence_pkey backwards, chrono_run_pkey, chrono_run_kept_pkey
--
-- Of each job so many runs up to the one that is named, and the newest: behind a backlog
-- the newest have not begun. Rows that skip are passed over, 20,000 at most. A run that
-- lies in no history is live; or it was a success, if it is older than that history.
WITH wanted AS MATERIALIZED (
    SELECT part, job_id, count, to_timestamp(instant / 1000.0::float8) AS instant
    FROM unnest(
        %(parts)s::smallint[], %(jobs)s::uuid[], %(counts)s::integer[],
        %(instants)s::bigint[]
    ) AS w (part, job_id, count, instant)
), fired AS MATERIALIZED (
    SELECT w.job_id, o.run_id, o.scheduled_for FROM wanted w CROSS JOIN LATERAL (
        SELECT run_id, scheduled_for FROM (
            SELECT run_id, scheduled_for, outcome FROM chrono_occurrence
            WHERE part = w.part AND job_id = w.job_id
            ORDER BY scheduled_for DESC LIMIT 20000
        ) AS looked WHERE outcome = 1 LIMIT w.count
    ) o
    UNION
    SELECT w.job_id, o.run_id, o.scheduled_for FROM wanted w CROSS JOIN LATERAL (
        SELECT run_id, scheduled_for FROM (
            SELECT run_id, scheduled_for, outcome FROM chrono_occurrence
            WHERE part = w.part AND job_id = w.job_id AND scheduled_for <= w.instant
            ORDER BY scheduled_for DESC LIMIT 20000
        ) AS looked WHERE outcome = 1 LIMIT w.count
    ) o
), ended AS MATERIALIZED (
    SELECT id, state, finished_at FROM chrono_run
    WHERE id = ANY(ARRAY(SELECT run_id FROM fired))
    UNION ALL
    SELECT id, state, finished_at FROM chrono_run_kept
    WHERE id = ANY(ARRAY(SELECT run_id FROM fired))
)
SELECT f.job_id, f.run_id, e.state, floor(extract(epoch FROM e.finished_at) * 1000)::bigint
FROM fired f LEFT JOIN ended e ON e.id = f.run_id
