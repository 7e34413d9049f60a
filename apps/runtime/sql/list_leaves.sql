-- List the leaves of a partitioned table.
-- writes: nothing
SELECT c.relname, i.inhdetachpending
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = %(parent)s::text::regclass ORDER BY 1
