-- Delete workers that are long dead, a bounded number a statement.
-- writes: worker
--
-- What is found of theirs after all is an orphan as long as they have no row.
DELETE FROM chrono_worker WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM chrono_worker
    WHERE dead AND swept
        AND beat_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
    LIMIT %(limit)s::integer FOR UPDATE SKIP LOCKED
))
