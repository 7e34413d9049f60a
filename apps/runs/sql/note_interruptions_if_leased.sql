-- Count that runs are stopped with their worker; return how often each was by now.
-- writes: death
-- index: chrono_lease_pkey
--
-- The leases are locked first, as by who settles them: the counts are written behind.
WITH held AS MATERIALIZED (
    SELECT run_id, part FROM chrono_lease
    WHERE run_id = ANY(%(runs)s::uuid[]) AND token = ANY(%(tokens)s::uuid[])
    FOR UPDATE
)
INSERT INTO chrono_death (run_id, part, deaths, interruptions)
SELECT run_id, part, 0, 1 FROM held
ON CONFLICT (run_id, part) DO UPDATE
SET interruptions = least(chrono_death.interruptions + 1, 32000),
    died_at = clock_timestamp()
RETURNING run_id, interruptions
