-- Name these tables.
-- writes: nothing
SELECT oid::bigint, relname FROM pg_class WHERE oid = ANY(%(oids)s::bigint[]::oid[])
