-- Forget passes of more than a day ago whose run is neither ready, held nor leased.
-- writes: pass
-- index: chrono_pass_admitted
--
-- Most are forgotten when the next run is let in by their gate; where none comes, here.
DELETE FROM chrono_pass p
WHERE p.admitted_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
    AND NOT EXISTS (SELECT FROM chrono_ready r WHERE r.run_id = p.run_id)
    AND NOT EXISTS (
        SELECT FROM chrono_blocked b WHERE b.run_id = p.run_id AND b.part = p.part)
    AND NOT EXISTS (
        SELECT FROM chrono_lease l WHERE l.run_id = p.run_id AND l.part = p.part)
