-- Every row that names no other tenant belongs to this one.
SET LOCAL lock_timeout = '2s';
INSERT INTO chrono_tenant (id, name, created_at) VALUES (1, 'default', now())
    ON CONFLICT (id) DO NOTHING;
ALTER TABLE chrono_tenant ALTER COLUMN id RESTART WITH 2;

ALTER TABLE chrono_tenant
    ADD CONSTRAINT chrono_tenant_name CHECK (btrim(name) <> ''),
    ADD CONSTRAINT chrono_tenant_instants CHECK (
        created_at >= '1970-01-01Z' AND created_at < '9999-01-01Z'
    );
ALTER TABLE chrono_api_key
    ADD CONSTRAINT chrono_api_key_id CHECK (id ~ '^[0-9A-Za-z]{8}$'),
    ADD CONSTRAINT chrono_api_key_digest CHECK (octet_length(digest) = 32),
    ADD CONSTRAINT chrono_api_key_scopes CHECK (
        cardinality(scopes) > 0
        AND scopes::text[] <@ ARRAY['read', 'operate', 'write', 'admin', 'worker']
    ),
    ADD CONSTRAINT chrono_api_key_instants CHECK (
        created_at >= '1970-01-01Z' AND created_at < '9999-01-01Z'
        AND (expires_at IS NULL
            OR expires_at > created_at AND expires_at < '9999-01-01Z')
    );
-- Its one frequent write is last_used_at, which no index has: room for it on the page.
ALTER TABLE chrono_api_key SET (fillfactor = 70);

ALTER TABLE chrono_audit_event
    ADD CONSTRAINT chrono_audit_event_actor_kind CHECK (
        actor_kind IN ('key', 'user', 'command', 'system')
    ),
    ADD CONSTRAINT chrono_audit_event_action CHECK (
        action ~ '^[a-z_]+\.[a-z_]+$'
    ),
    ADD CONSTRAINT chrono_audit_event_sides CHECK (
        (before IS NULL OR jsonb_typeof(before) = 'object')
        AND (after IS NULL OR jsonb_typeof(after) = 'object')
    );

CREATE FUNCTION chrono_refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '% of %: its rows are never changed or deleted',
        TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;
-- By statement: it refuses before it looks for rows. ALWAYS: a session in replica mode
-- gets no further.
CREATE TRIGGER chrono_audit_event_append_only
    BEFORE UPDATE OR DELETE OR TRUNCATE ON chrono_audit_event
    FOR EACH STATEMENT EXECUTE FUNCTION chrono_refuse_change();
ALTER TABLE chrono_audit_event
    ENABLE ALWAYS TRIGGER chrono_audit_event_append_only;
