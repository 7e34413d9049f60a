-- Tell a tenant's time zone: that of a new cron job that names none.
-- writes: nothing
-- index: chrono_tenant_pkey
SELECT timezone FROM chrono_tenant WHERE id = %(tenant)s::integer
