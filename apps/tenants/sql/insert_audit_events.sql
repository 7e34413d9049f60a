-- Write down who changed what, in the transaction of the change.
-- writes: audit_event
--
-- The id is a UUID version 7 of the same instant as `at`; its next 12 bits count the
-- events of this statement, so that they sort in the order in which they were given.
WITH t AS MATERIALIZED (
    SELECT coalesce(
        to_timestamp(%(now)s::bigint / 1000.0::float8), clock_timestamp()
    ) AS at
)
INSERT INTO chrono_audit_event (
    id, at, tenant_id, actor, actor_kind, action, object_kind, object_id, before, after,
    reason, request_id
)
SELECT encode(
        overlay(
            uuid_send(gen_random_uuid()) PLACING
            substring(int8send(floor(extract(epoch FROM t.at) * 1000)::bigint) FROM 3)
                || int2send((28672 + ((e.place - 1) & 4095))::smallint)
            FROM 1 FOR 8
        ), 'hex'
    )::uuid,
    t.at, e.tenant, %(actor)s::text, %(actor_kind)s::text, e.action, e.object_kind,
    e.object_id, e.before, e.after, e.reason, %(request_id)s::text
FROM t CROSS JOIN unnest(
    %(tenants)s::integer[], %(actions)s::text[], %(object_kinds)s::text[],
    %(object_ids)s::text[], %(befores)s::jsonb[], %(afters)s::jsonb[],
    %(reasons)s::text[]
) WITH ORDINALITY AS e (
    tenant, action, object_kind, object_id, before, after, reason, place
)
