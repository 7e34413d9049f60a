-- Keep how many runs are left to plans that are over as soon as an edit makes them.
-- writes: plan_end given_back
-- locks: none; the partitions are locked already
-- index: chrono_plan_end_pkey, chrono_given_back_pkey
--
-- What earlier plans of all edited jobs left, and what skipped late occurrences gave
-- back, is in their new plans by now.
WITH forgotten AS (
    DELETE FROM chrono_plan_end
    WHERE (part, job_id) IN (
        SELECT * FROM unnest(%(parts)s::smallint[], %(jobs)s::uuid[])
    )
), taken AS (
    DELETE FROM chrono_given_back
    WHERE (part, job_id) IN (
        SELECT * FROM unnest(%(parts)s::smallint[], %(jobs)s::uuid[])
    )
)
INSERT INTO chrono_plan_end (part, job_id, version, remaining)
SELECT part, job_id, version, remaining FROM unnest(
    %(parts)s::smallint[], %(jobs)s::uuid[], %(versions)s::integer[],
    %(remaining)s::integer[]
) AS e (part, job_id, version, remaining)
WHERE remaining IS NOT NULL
