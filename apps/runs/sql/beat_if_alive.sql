-- Renew every lease of a worker; tell which of its runs were cancelled.
-- writes: worker
-- moves: nothing
-- index: chrono_worker_pkey, chrono_blocked_gate
--
-- Those whose execution was ended from outside are told for a minute, as if cancelled.
-- A run that was withdrawn under an open claim has no flag: its cancel could not see the
-- lease. No row means: marked dead. Stop everything, start over under a new id.
--
-- It also tells what a worker goes by until the next beat: up to where timers have
-- buckets, whether runs of its queues were set aside, and the time.
WITH alive AS (
    UPDATE chrono_worker SET beat_at = clock_timestamp()
    WHERE id = %(worker)s::uuid AND NOT dead
    RETURNING id
)
SELECT ARRAY(
    SELECT l.run_id FROM chrono_lease l WHERE l.worker = a.id AND l.cancel
    UNION
    SELECT l.run_id FROM chrono_withdrawn w CROSS JOIN LATERAL (
        SELECT l.run_id FROM chrono_lease l
        WHERE l.run_id = w.run_id AND l.part = w.part AND l.worker = a.id OFFSET 0
    ) l
    UNION
    SELECT e.run_id FROM chrono_lease_end e
    WHERE e.worker = a.id AND e.ended_at > clock_timestamp() - interval '1 minute'
), floor(extract(epoch FROM s.horizon) * 1000)::bigint, EXISTS (
    SELECT FROM chrono_blocked
    WHERE gate = 'process_crash' AND reason NOT IN (1, 2, 31)
        AND queue = ANY(%(queues)s::text[])
), (extract(epoch FROM clock_timestamp()) * 1000)::float8
FROM alive a CROSS JOIN chrono_dispatch_state s WHERE s.id = 1
