-- Look at the workers that are not swept: the silent, those without a session, the dead.
-- writes: nothing
-- index: chrono_worker_unswept
--
-- A session of a worker holds its identity, an advisory lock keyed by the last 64 bits
-- of its id. A beat that lies ahead is from before the clock was put back.
WITH held AS MATERIALIZED (
    SELECT (classid::bigint << 32) | objid::bigint AS identity FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
), seen AS MATERIALIZED (
    SELECT id, dead, beat_at NOT BETWEEN
            clock_timestamp() - %(quiet)s::bigint * interval '1 ms'
            AND clock_timestamp() + %(quiet)s::bigint * interval '1 ms' AS silent,
        held AND ('x' || right(replace(id::text, '-', ''), 16))::bit(64)::bigint
            NOT IN (SELECT identity FROM held) AS gone
    FROM chrono_worker WHERE NOT swept
)
SELECT
    floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    floor(extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000
        )::bigint,
    ARRAY(SELECT id FROM seen WHERE silent AND NOT dead),
    ARRAY(SELECT id FROM seen WHERE gone AND NOT dead),
    ARRAY(SELECT id FROM seen WHERE dead)
