-- Find rows whose fence is above their partition's (invariant 4).
-- writes: nothing
WITH written AS (
    SELECT part, fence, 'occurrence of job ' || job_id AS subject
    FROM chrono_occurrence
    WHERE scheduled_for >= to_timestamp(%(since)s::bigint / 1000.0::float8)
    UNION ALL SELECT part, fence, 'ready run ' || run_id FROM chrono_ready
    UNION ALL SELECT part, fence, 'leased run ' || run_id FROM chrono_lease
    UNION ALL SELECT part, fence, 'run ' || id FROM chrono_run
    WHERE id >= %(since_id)s::uuid
    UNION ALL SELECT part, fence, 'attempt of run ' || run_id FROM chrono_attempt
    WHERE run_id >= %(since_id)s::uuid
)
SELECT w.subject, 'fence ' || w.fence || ', its partition has ' || p.fence
FROM written w JOIN chrono_partition p ON p.id = w.part AND w.fence > p.fence
LIMIT %(limit)s::integer
