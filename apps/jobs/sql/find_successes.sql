-- Of each of these jobs find a run that ended well at or after an instant.
-- writes: nothing
-- index: chrono_occurrence_pkey backwards, chrono_run_pkey, chrono_run_kept_pkey
--
-- The newest one by its instant; the look ends there, or after so many rows, or a day
-- before the instant: what was begun earlier than that is not waited for. A run that is
-- in the history no more was a success, if it is old enough to have left it.
SELECT w.job_id, floor(extract(epoch FROM s.ended) * 1000)::bigint
FROM unnest(
    %(parts)s::smallint[], %(jobs)s::uuid[], %(instants)s::bigint[],
    %(rows)s::integer[]
) AS w (part, job_id, instant, rows)
CROSS JOIN LATERAL (
    SELECT coalesce(r.finished_at, o.scheduled_for) AS ended FROM (
        SELECT run_id, scheduled_for FROM (
            SELECT run_id, scheduled_for, outcome FROM chrono_occurrence
            WHERE part = w.part AND job_id = w.job_id
                AND scheduled_for >= to_timestamp(w.instant / 1000.0::float8)
                    - interval '1 day'
            ORDER BY scheduled_for DESC LIMIT w.rows
        ) AS looked WHERE outcome = 1
    ) o LEFT JOIN LATERAL (
        SELECT state, finished_at FROM chrono_run
        WHERE id = o.run_id AND part = w.part
        UNION ALL
        SELECT state, finished_at FROM chrono_run_kept
        WHERE id = o.run_id AND part = w.part
        LIMIT 1
    ) r ON true
    WHERE coalesce(r.finished_at, o.scheduled_for)
            >= to_timestamp(w.instant / 1000.0::float8)
        AND (r.state = 1 OR r.state IS NULL
            AND o.scheduled_for < to_timestamp(%(gone)s::bigint / 1000.0::float8))
    LIMIT 1
) s
