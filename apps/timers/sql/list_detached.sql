-- List the buckets that were detached and not dropped yet.
-- writes: nothing
SELECT c.relname FROM pg_class c
JOIN pg_class p ON p.oid = 'chrono_timer'::regclass
    AND p.relnamespace = c.relnamespace
WHERE c.relkind = 'r' AND NOT c.relispartition
    AND c.relname ~ '^chrono_timer_[0-9]{10}$'
ORDER BY 1
