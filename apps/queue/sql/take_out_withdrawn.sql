-- Take withdrawn runs out of a slice; they have their final row already.
-- writes: ready
-- moves: ready -> nothing
DELETE FROM {slice} WHERE ctid = ANY(ARRAY(
    SELECT r.ctid FROM {slice} r JOIN chrono_withdrawn w
        ON w.run_id = r.run_id AND w.part = r.part
    FOR UPDATE OF r SKIP LOCKED
))
