-- Tell how many runs are left to jobs that have a number of them, by their plan in force.
-- writes: nothing
-- index: chrono_plan_end_pkey, chrono_given_back_pkey, chrono_timer_key and chrono_timer_far's
-- (part, due_at, ref, kind, version)
--
-- A plan that is over has no timer, but a row of its own. What late occurrences gave back
-- comes apart: of a job that has no plan the caller knows the rest.
-- A schedule's timer is not indexed by its job, so this reads its partition's from what
-- the job has decided last to where the timer lies: it is due later than that. Few jobs
-- are counted, and only when somebody edits them or looks at one.
SELECT w.job_id, coalesce((
    SELECT e.remaining FROM chrono_plan_end e
    WHERE e.part = w.part AND e.job_id = w.job_id AND e.version = w.version
), (
    SELECT t.remaining FROM chrono_timer t
    WHERE t.part = w.part AND t.ref = w.job_id AND t.kind = 1 AND t.version = w.version
        AND t.due_at > w.decided
    ORDER BY t.due_at LIMIT 1
), (
    SELECT t.remaining FROM chrono_timer_far t
    WHERE t.part = w.part AND t.ref = w.job_id AND t.kind = 1 AND t.version = w.version
        AND t.due_at > w.decided
    ORDER BY t.due_at LIMIT 1
)), (
    SELECT count(*) FROM chrono_given_back g
    WHERE g.part = w.part AND g.job_id = w.job_id
)
FROM (
    SELECT part, job_id, version, to_timestamp(decided / 1000.0::float8) AS decided
    FROM unnest(
        %(parts)s::smallint[], %(jobs)s::uuid[], %(versions)s::integer[],
        %(decided)s::bigint[]
    ) AS d (part, job_id, version, decided)
) w
