DROP TRIGGER chrono_audit_event_append_only ON chrono_audit_event;
DROP FUNCTION chrono_refuse_change();
ALTER TABLE chrono_audit_event
    DROP CONSTRAINT chrono_audit_event_sides,
    DROP CONSTRAINT chrono_audit_event_action,
    DROP CONSTRAINT chrono_audit_event_actor_kind;
ALTER TABLE chrono_api_key RESET (fillfactor);
ALTER TABLE chrono_api_key
    DROP CONSTRAINT chrono_api_key_instants,
    DROP CONSTRAINT chrono_api_key_scopes,
    DROP CONSTRAINT chrono_api_key_digest,
    DROP CONSTRAINT chrono_api_key_id;
ALTER TABLE chrono_tenant
    DROP CONSTRAINT chrono_tenant_instants,
    DROP CONSTRAINT chrono_tenant_name;
