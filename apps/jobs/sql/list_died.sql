-- Of the runs that died since an instant, list those jobs' that are paused by failures.
-- writes: nothing
-- index: chrono_dead_letter_died
--
-- Every row says how many deaths were looked at, and the instant of the last of them.
-- Where no job is to be judged there is one row without a job.
WITH died AS MATERIALIZED (
    SELECT job_id, run_id, died_at FROM chrono_dead_letter
    WHERE died_at >= to_timestamp(%(since)s::bigint / 1000.0::float8)
    ORDER BY died_at LIMIT %(limit)s::integer
), jobs AS MATERIALIZED (
    SELECT job_id, array_agg(run_id) AS runs FROM died GROUP BY job_id
), judged AS (
    SELECT d.job_id, d.runs, j.part, j.changes,
        least(j.activated_at, j.updated_at) AS since,
        r.policy -> 'pause_on_failure' AS bound
    FROM jobs d
    JOIN chrono_job j ON j.id = d.job_id AND NOT j.paused AND j.deleted_at IS NULL
    JOIN chrono_job_revision r ON r.job_id = j.id AND r.revision = j.revision
    WHERE r.policy ? 'pause_on_failure'
)
SELECT s.seen, s.until, j.job_id, j.part, j.changes, j.runs,
    floor(extract(epoch FROM j.since) * 1000)::bigint, j.bound::text
FROM (
    SELECT count(*) AS seen, floor(extract(epoch FROM max(died_at)) * 1000)::bigint
        AS until
    FROM died
) s LEFT JOIN judged j ON true
