-- Read what late runs stand for: the collapsed occurrences directly before each.
-- writes: nothing
-- index: chrono_occurrence_pkey backwards
--
-- Steps back from row to row, and ends at the first that is no collapsed one: of a run
-- that stands for itself alone a single row is read, of no run more than `most`.
WITH RECURSIVE asked AS MATERIALIZED (
    SELECT part, job_id, run_id, to_timestamp(instant / 1000.0::float8) AS before
    FROM unnest(
        %(parts)s::smallint[], %(jobs)s::uuid[], %(runs)s::uuid[], %(instants)s::bigint[]
    ) AS a (part, job_id, run_id, instant)
), step AS (
    SELECT a.part, a.job_id, a.run_id, o.scheduled_for, o.occurrences, 1 AS depth
    FROM asked a CROSS JOIN LATERAL (
        SELECT scheduled_for, reason, coalesce(occurrences, 1) AS occurrences
        FROM chrono_occurrence
        WHERE part = a.part AND job_id = a.job_id AND attempt_group = 0
            AND scheduled_for < a.before
        ORDER BY scheduled_for DESC LIMIT 1
    ) o WHERE o.reason = 5
    UNION ALL
    SELECT s.part, s.job_id, s.run_id, o.scheduled_for, o.occurrences, s.depth + 1
    FROM step s CROSS JOIN LATERAL (
        SELECT scheduled_for, reason, coalesce(occurrences, 1) AS occurrences
        FROM chrono_occurrence
        WHERE part = s.part AND job_id = s.job_id AND attempt_group = 0
            AND scheduled_for < s.scheduled_for
        ORDER BY scheduled_for DESC LIMIT 1
    ) o WHERE o.reason = 5 AND s.depth < %(most)s::integer
)
SELECT run_id, floor(extract(epoch FROM min(scheduled_for)) * 1000)::bigint,
    sum(occurrences)::bigint + 1
FROM step GROUP BY run_id
