-- Delete ends of executions that their worker was told of, or died without.
-- writes: lease_end
DELETE FROM chrono_lease_end
WHERE ended_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
