-- Count what the ledger has of jobs' missed and skipped occurrences.
-- writes: nothing
-- index: chrono_occurrence_not_fired, one partition's part of each day
--
-- Of a job that skips very often the newest rows are counted alone; a row may stand for
-- a stretch of many. Kind 2 ran, but was missed: it ran in the catch-up lane.
SELECT w.job_id, coalesce(s.skipped, 0), coalesce(s.missed, 0), coalesce(s.seen, 0)
FROM unnest(%(parts)s::smallint[], %(jobs)s::uuid[]) AS w (part, job_id)
CROSS JOIN LATERAL (
    SELECT sum(coalesce(n.occurrences, 1)) FILTER (WHERE n.outcome = 2)::bigint
            AS skipped,
        sum(coalesce(n.occurrences, 1)) FILTER (
            WHERE n.outcome = 1 OR n.reason IN (4, 5, 6))::bigint AS missed,
        count(*)::integer AS seen
    FROM (
        SELECT outcome, reason, occurrences FROM chrono_occurrence
        WHERE part = w.part AND job_id = w.job_id AND (outcome = 2 OR kind = 2)
            AND scheduled_for >= to_timestamp(%(since)s::bigint / 1000.0::float8)
        ORDER BY scheduled_for DESC LIMIT %(limit)s::integer
    ) AS n
) s
