-- Mark workers dead that still have no session, and did not beat since that was seen.
-- writes: worker
-- locks: worker rows in id order FOR UPDATE
--
-- A worker that lost its session beats at once: whoever beat since then lives.
WITH locked AS MATERIALIZED (
    SELECT w.id, g.since FROM chrono_worker w JOIN unnest(
        %(workers)s::uuid[], %(since)s::bigint[]
    ) AS g (id, since) ON g.id = w.id
    ORDER BY w.id FOR UPDATE OF w
), held AS MATERIALIZED (
    SELECT (classid::bigint << 32) | objid::bigint AS identity FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND EXISTS (SELECT FROM locked)
)
UPDATE chrono_worker w SET dead = true, crashed = true
FROM locked l
WHERE w.id = l.id AND NOT w.dead AND w.held
    AND w.beat_at < to_timestamp(l.since / 1000.0::float8)
    AND ('x' || right(replace(w.id::text, '-', ''), 16))::bit(64)::bigint
        NOT IN (SELECT identity FROM held)
RETURNING w.id
