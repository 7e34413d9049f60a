-- Tell the highest attempt group that the ledger has of jobs' instants, 0 for none.
-- writes: nothing
-- index: chrono_occurrence_pkey
--
-- What is not fired yet, or older than the ledger, is told apart by its id.
SELECT coalesce((
    SELECT max(o.attempt_group) FROM chrono_occurrence o
    WHERE o.part = w.part AND o.job_id = w.job_id
        AND o.scheduled_for = to_timestamp(w.scheduled_for / 1000.0::float8)
), 0)
FROM unnest(
    %(parts)s::smallint[], %(jobs)s::uuid[], %(scheduled_for)s::bigint[]
) WITH ORDINALITY AS w (part, job_id, scheduled_for, n)
ORDER BY w.n
