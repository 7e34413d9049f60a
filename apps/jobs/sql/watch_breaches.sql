-- Of some open breaches, read what tells whether they are over.
-- writes: nothing
-- index: chrono_breach_pkey; the primary keys of what a run may lie in
--
-- A run has begun where it is executed, is over, or waits for another attempt; one that
-- was decided not to run is over, too. Its first second of execution does not count yet:
-- a worker that knows no handler hands it back within that.
WITH looked AS MATERIALIZED (
    SELECT job_id, kind, run_id, tenant, part, since FROM chrono_breach
    WHERE (job_id, kind, run_id)
        > (%(job)s::uuid, %(kind)s::smallint, %(run)s::uuid)
    ORDER BY job_id, kind, run_id LIMIT %(limit)s::integer
), ended AS MATERIALIZED (
    -- With an order asked for and no sort allowed, no index but the key can answer.
    (
        SELECT id FROM chrono_run
        WHERE id = ANY(ARRAY(SELECT run_id FROM looked WHERE kind < 3))
        ORDER BY id, part
    ) UNION ALL (
        SELECT id FROM chrono_run_kept
        WHERE id = ANY(ARRAY(SELECT run_id FROM looked WHERE kind < 3))
        ORDER BY id, part
    )
), again AS MATERIALIZED (
    SELECT t.ref FROM chrono_timer t
    WHERE t.kind = 4 AND t.attempt > 1 AND t.part = ANY(ARRAY(SELECT part FROM looked))
        AND t.ref = ANY(ARRAY(SELECT run_id FROM looked WHERE kind = 1))
    UNION ALL
    SELECT t.ref FROM chrono_timer_far t
    WHERE t.kind = 4 AND t.attempt > 1 AND t.part = ANY(ARRAY(SELECT part FROM looked))
        AND t.ref = ANY(ARRAY(SELECT run_id FROM looked WHERE kind = 1))
), skipped AS MATERIALIZED (
    SELECT l.run_id FROM looked l CROSS JOIN LATERAL (
        SELECT FROM chrono_occurrence o
        WHERE l.kind = 1 AND o.part = l.part AND o.job_id = l.job_id
            AND o.scheduled_for = to_timestamp((
                'x' || substr(replace(l.run_id::text, '-', ''), 1, 12)
            )::bit(48)::bigint / 1000.0::float8)
            AND o.run_id = l.run_id AND o.outcome = 2
        OFFSET 0
    ) o
)
SELECT l.job_id, l.kind, l.run_id, l.tenant, l.part,
    floor(extract(epoch FROM l.since) * 1000)::bigint,
    p.stopped, (p.policy -> CASE l.kind WHEN 1 THEN 'late_after'
        WHEN 2 THEN 'max_runtime' ELSE 'max_time_since_success' END)::text,
    floor(extract(epoch FROM x.started_at) * 1000)::bigint,
    l.run_id IN (SELECT id FROM ended) OR l.run_id IN (SELECT ref FROM again)
        OR l.run_id IN (SELECT run_id FROM skipped)
FROM looked l CROSS JOIN LATERAL (
    SELECT j.paused OR j.deleted_at IS NOT NULL AS stopped, p.policy FROM chrono_job j
    JOIN chrono_job_revision p ON p.job_id = j.id AND p.revision = j.revision
    WHERE j.id = l.job_id OFFSET 0
) p LEFT JOIN LATERAL (
    SELECT started_at FROM chrono_lease
    WHERE run_id = l.run_id AND part = l.part OFFSET 0
) x ON true
ORDER BY l.job_id, l.kind, l.run_id
