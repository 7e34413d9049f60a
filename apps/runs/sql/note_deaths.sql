-- Note that the process of these runs died under them.
-- writes: death
INSERT INTO chrono_death (run_id, part)
SELECT * FROM unnest(%(runs)s::uuid[], %(parts)s::smallint[])
ON CONFLICT (run_id, part) DO UPDATE
SET deaths = least(chrono_death.deaths + 1, 32000), died_at = clock_timestamp()
