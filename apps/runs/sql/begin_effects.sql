-- Begin the transaction of a run's effects: its id, and whether the lease still holds.
-- writes: nothing
-- index: chrono_lease_pkey, chrono_job_pkey
--
-- It locks nothing: what counts is the settle at its end. A session whose client is gone
-- must not hold the locks of effects, so the server looks after it until then.
SELECT pg_current_xact_id()::text, EXISTS (
    SELECT FROM chrono_lease
    WHERE run_id = %(run)s::uuid AND part = %(part)s::smallint AND token = %(token)s::uuid
), EXISTS (SELECT FROM chrono_job WHERE id = %(job)s::uuid),
    set_config('client_connection_check_interval', '1000', true),
    set_config('tcp_user_timeout', '4000', true),
    set_config('tcp_keepalives_idle', '2', true),
    set_config('tcp_keepalives_interval', '1', true),
    set_config('tcp_keepalives_count', '2', true)
