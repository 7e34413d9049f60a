-- Tell what there is to do for upkeep: what is over, left behind, or in the way.
-- writes: nothing
-- index: chrono_job_resume, chrono_dead_letter_died
--
-- Of each kind only whether there is any; who asks then has a statement of its own.
SELECT s.slice,
    EXISTS (
        SELECT FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND datname = current_database()
            AND starts_with(application_name, 'chrono')
            AND query_start < clock_timestamp() - %(after)s::bigint * interval '1 ms'
    ),
    EXISTS (
        SELECT FROM chrono_job
        WHERE paused AND paused_until IS NOT NULL AND deleted_at IS NULL
            AND paused_until <= clock_timestamp()
    ),
    EXISTS (SELECT FROM chrono_given_back),
    EXISTS (
        SELECT FROM chrono_dead_letter
        WHERE died_at >= to_timestamp(%(since)s::bigint / 1000.0::float8)
    ),
    EXISTS (
        SELECT FROM generate_series(0, 7) AS n
        WHERE pg_relation_size(('chrono_ready_' || n)::regclass) > 0
    ),
    EXISTS (SELECT FROM chrono_withdrawn) OR EXISTS (SELECT FROM chrono_slot)
FROM chrono_dispatch_state s WHERE s.id = 1
