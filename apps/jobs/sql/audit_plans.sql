-- Read what the audit events since an instant say of the plans of some jobs.
-- writes: nothing
-- index: chrono_audit_event_object
--
-- Newest first: of a job that is changed all the time the oldest are left out.
SELECT a.job, e.action,
    (e.before ->> 'plan_version')::integer, e.before ->> 'plan_since',
    (e.before ->> 'paused')::boolean, (e.before ->> 'revision')::integer,
    (e.after ->> 'plan_version')::integer, e.after ->> 'plan_since',
    (e.after ->> 'paused')::boolean, (e.after ->> 'revision')::integer
FROM unnest(%(jobs)s::uuid[], %(tenants)s::integer[]) AS a (job, tenant)
CROSS JOIN LATERAL (
    SELECT e.action, e.before, e.after FROM chrono_audit_event e
    WHERE e.tenant_id = a.tenant AND e.object_kind = 'job'
        AND e.object_id = a.job::text AND e.id >= %(since_id)s::uuid
        AND e.action <> 'job.run'
    ORDER BY e.id DESC LIMIT %(limit)s::integer
) e
