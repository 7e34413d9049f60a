-- Name those of some occurrences that have no decision and wait in no timer.
-- writes: nothing
-- index: chrono_occurrence_pkey, chrono_timer_waiting
SELECT (a.n - 1)::integer
FROM (
    SELECT a.n, a.job, a.part, a.run,
        to_timestamp(a.moment / 1000.0::float8)::timestamptz(3) AS moment
    FROM unnest(
        %(jobs)s::uuid[], %(parts)s::smallint[], %(moments)s::bigint[],
        %(runs)s::uuid[]
    ) WITH ORDINALITY AS a (job, part, moment, run, n)
) a
LEFT JOIN LATERAL (
    SELECT coalesce(o.last_scheduled_for, o.scheduled_for) AS until
    FROM chrono_occurrence o
    WHERE o.part = a.part AND o.job_id = a.job AND o.attempt_group = 0
        AND o.scheduled_for <= a.moment
    ORDER BY o.scheduled_for DESC LIMIT 1
) o ON true
WHERE (o.until >= a.moment) IS NOT TRUE AND (
    SELECT true FROM chrono_timer
    WHERE part = a.part AND ref = a.run AND kind <> 1 LIMIT 1
) IS NOT TRUE AND (
    SELECT true FROM chrono_timer_far
    WHERE part = a.part AND ref = a.run AND kind <> 1 LIMIT 1
) IS NOT TRUE
