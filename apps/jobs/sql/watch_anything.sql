-- Tell whether anything is under way, overdue, wrong, or must succeed now and then.
-- writes: nothing
-- index: chrono_timer_waiting and chrono_timer_key on every bucket,
--     chrono_job_revision_watched
--
-- In an idle system there is nothing, and this is all that watching costs it.
SELECT EXISTS (SELECT FROM chrono_lease)
    OR EXISTS (SELECT FROM chrono_ready)
    OR EXISTS (SELECT FROM chrono_breach)
    OR EXISTS (SELECT FROM chrono_blocked)
    OR EXISTS (
        SELECT FROM chrono_job_revision WHERE policy ? 'max_time_since_success'
    )
    OR EXISTS (SELECT FROM chrono_timer WHERE kind <> 1)
    OR EXISTS (
        SELECT FROM generate_series(0, 63) AS n (part) CROSS JOIN LATERAL (
            SELECT FROM chrono_timer
            WHERE part = n.part::smallint AND kind = 1
                AND due_at < to_timestamp(%(before)s::bigint / 1000.0::float8)
            ORDER BY due_at LIMIT 1
        ) t
    )
