-- Read the next rows of the ledger of some jobs, and what is wrong with each by itself.
-- writes: nothing
-- index: chrono_occurrence_pkey, chrono_run_pkey, chrono_audit_event_object
--
-- The time of a row's commit, where the server keeps it, else of the row itself, is
-- compared with that of the takeover. A run that is not in the history is named: it may
-- be on its way. What was skipped ahead of its day's leaf was moved, and so written
-- twice. A run's id is the millisecond of its instant, its partition and a last bit
-- that says whether it is an extra.
WITH asked AS MATERIALIZED (
    SELECT a.n, a.job, a.part, a.tenant, a.attempt_group, p.fence, p.taken_at,
        to_timestamp(a.after / 1000.0::float8)::timestamptz(3) AS after
    FROM unnest(
        %(jobs)s::uuid[], %(parts)s::smallint[], %(tenants)s::integer[],
        %(after)s::bigint[], %(groups)s::integer[]
    ) WITH ORDINALITY AS a (job, part, tenant, after, attempt_group, n)
    JOIN chrono_partition p ON p.id = a.part
)
SELECT (a.n - 1)::integer, floor(extract(epoch FROM o.scheduled_for) * 1000)::bigint,
    floor(extract(epoch FROM o.last_scheduled_for) * 1000)::bigint, o.outcome = 1,
    o.occurrences, o.version, o.revision, o.attempt_group, o.fence,
    floor(extract(epoch FROM c.stamp) * 1000000)::bigint,
    o.reason IS NOT DISTINCT FROM 18,
    CASE WHEN o.outcome = 1 AND r.id IS NULL AND o.scheduled_for
        >= to_timestamp(%(runs_since)s::bigint / 1000.0::float8) THEN o.run_id END,
    w.wrong
FROM asked a
CROSS JOIN LATERAL (
    SELECT o.*, o.xmin AS written FROM chrono_occurrence o
    WHERE o.part = a.part AND o.job_id = a.job AND o.scheduled_for >= a.after
        AND (o.scheduled_for, o.attempt_group) > (a.after, a.attempt_group)
    ORDER BY o.scheduled_for, o.attempt_group LIMIT %(rows)s::integer
) o
LEFT JOIN LATERAL (
    SELECT r.id FROM chrono_run r
    WHERE o.outcome = 1 AND r.id = o.run_id AND r.part = o.part OFFSET 0
) r ON true
CROSS JOIN LATERAL (
    SELECT coalesce(CASE
        WHEN %(commit_times)s::boolean THEN pg_xact_commit_timestamp(o.written)
    END, o.decided_at) AS stamp,
    o.reason IS NOT DISTINCT FROM 18
        AND o.decided_at < o.scheduled_for - interval '2 days' AS moved
) c
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN o.outcome = 1 AND o.decided_at < o.scheduled_for THEN 'early'
        WHEN o.fence > a.fence THEN 'fence'
        WHEN o.fence > 0 AND o.fence < a.fence AND c.stamp > a.taken_at THEN 'deposed'
        WHEN o.outcome = 1 AND substring(uuid_send(o.run_id) FROM 1 FOR 6)
            <> substring(int8send(
                floor(extract(epoch FROM o.scheduled_for) * 1000)::bigint) FROM 3)
            THEN 'id'
        WHEN o.outcome = 1 AND ((get_byte(uuid_send(o.run_id), 6) & 15) * 4
            + get_byte(uuid_send(o.run_id), 7) / 64) <> o.part THEN 'id'
        WHEN o.outcome = 1 AND (get_byte(uuid_send(o.run_id), 15) & 1 = 1)
            <> (o.attempt_group > 0) THEN 'id'
        WHEN o.kind = 3 AND o.attempt_group < 1 THEN 'group'
        WHEN c.stamp > o.decided_at + interval '1 minute' AND NOT c.moved
            THEN 'rewritten'
        WHEN o.fence = 0 AND NOT c.moved AND NOT EXISTS (
            SELECT FROM chrono_audit_event e
            WHERE e.tenant_id = a.tenant AND e.xmin = o.written
                AND (e.object_kind, e.object_id) IN (
                    ('job', o.job_id::text), ('run', o.run_id::text))
        ) THEN 'unrecorded'
    END AS wrong
) w
ORDER BY a.n, o.scheduled_for, o.attempt_group
