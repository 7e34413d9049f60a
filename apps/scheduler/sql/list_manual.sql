-- Of these runs, list those that somebody asked for.
-- writes: nothing
-- index: chrono_occurrence_pkey
--
-- Asked only for retries of paused jobs. The ledger's rows are found by job and instant.
SELECT run_id FROM chrono_occurrence
WHERE part = ANY(%(parts)s::smallint[]) AND job_id = ANY(%(jobs)s::uuid[])
    AND scheduled_for = ANY(ARRAY(
        SELECT to_timestamp(m / 1000.0::float8)::timestamptz(3)
        FROM unnest(%(scheduled_for)s::bigint[]) AS m
    ))
    AND run_id = ANY(%(runs)s::uuid[]) AND kind = 3
