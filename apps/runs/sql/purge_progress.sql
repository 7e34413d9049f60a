-- Delete what runs past every retention told, a bounded number a statement.
-- writes: progress
-- index: chrono_progress_pkey
--
-- Ids begin with the time of the occurrence, which of a backfill's run may lie far back:
-- one that waits for another attempt, or told something lately, keeps its row.
DELETE FROM chrono_progress WHERE ctid = ANY(ARRAY(
    SELECT p.ctid FROM chrono_progress p
    WHERE p.run_id < %(before)s::uuid
        AND p.noted_at < to_timestamp(%(noted_before)s::bigint / 1000.0::float8)
        AND NOT EXISTS (
            SELECT FROM chrono_timer t
            WHERE t.part = p.part AND t.ref = p.run_id AND t.kind <> 1
        ) AND NOT EXISTS (
            SELECT FROM chrono_timer_far t
            WHERE t.part = p.part AND t.ref = p.run_id AND t.kind <> 1
        ) AND NOT EXISTS (
            SELECT FROM chrono_lease l WHERE l.run_id = p.run_id AND l.part = p.part
        )
    ORDER BY p.run_id LIMIT %(limit)s::integer FOR UPDATE OF p SKIP LOCKED
))
