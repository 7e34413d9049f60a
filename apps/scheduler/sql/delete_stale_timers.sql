-- Delete schedule timers that an edit left behind: older than their job's version.
-- writes: timer | timer_far
-- moves: timer -> nothing
-- index: {bucket} (part, due_at, ref, kind, version)
--
-- Drawn from the fence's guard; rows are taken SKIP LOCKED and deleted by ctid, so two
-- deleters never wait for each other in opposite orders. A partition that somebody holds
-- is skipped as well: firing must not wait for it, and the next look finds them again.
WITH held AS MATERIALIZED (
    SELECT id FROM chrono_partition
    WHERE id = %(part)s::smallint AND fence = %(fence)s::bigint
        AND term = %(term)s::uuid
    FOR SHARE SKIP LOCKED
), stale AS MATERIALIZED (
    SELECT t.ctid AS tid FROM held CROSS JOIN unnest(
        %(due)s::bigint[], %(ref)s::uuid[], %(version)s::integer[]
    ) AS d (due, ref, version)
    CROSS JOIN LATERAL (
        SELECT t.ctid FROM {bucket} t
        WHERE t.part = held.id
            AND t.due_at = to_timestamp(d.due / 1000.0::float8)
            AND t.ref = d.ref AND t.kind = 1 AND t.version = d.version
            AND t.version < (SELECT j.version FROM chrono_job j WHERE j.id = t.ref)
        OFFSET 0 FOR UPDATE SKIP LOCKED
    ) t
)
DELETE FROM {bucket} WHERE ctid = ANY(ARRAY(SELECT tid FROM stale))
