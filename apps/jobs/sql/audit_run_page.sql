-- Tell where the next so many runs of the history end, and how many they are.
-- writes: nothing
-- index: chrono_run_pkey, chrono_run_tenant
SELECT (array_agg(id ORDER BY id DESC))[1], count(*)::integer
FROM (
    SELECT id FROM chrono_run
    WHERE id > %(after)s::uuid
        AND (%(tenant)s::integer IS NULL OR tenant = %(tenant)s::integer)
    ORDER BY id LIMIT %(limit)s::integer
) r
