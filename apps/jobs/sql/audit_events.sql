-- Read the next audit events, and which jobs are not there as one of them told (2).
-- writes: nothing
-- index: chrono_audit_event_pkey, chrono_job_pkey
SELECT e.id, 'job ' || e.object_id, CASE
    WHEN e.object_kind <> 'job' THEN NULL
    WHEN j.id IS NULL THEN 'is gone, though ' || e.action || ' was acknowledged'
    WHEN j.changes < (e.after ->> 'version')::integer THEN 'is at version '
        || j.changes || ', though ' || (e.after ->> 'version') || ' was acknowledged'
END
FROM (
    SELECT * FROM chrono_audit_event
    WHERE id > %(after)s::uuid
        AND (%(tenant)s::integer IS NULL OR tenant_id = %(tenant)s::integer)
        AND (%(jobs)s::uuid[] IS NULL OR object_id = ANY(%(jobs)s::uuid[]::text[]))
    ORDER BY id LIMIT %(limit)s::integer
) e
LEFT JOIN chrono_job j ON j.id = CASE e.object_kind
    WHEN 'job' THEN e.object_id::uuid END
ORDER BY e.id
