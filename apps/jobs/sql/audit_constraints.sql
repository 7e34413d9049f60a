-- Name constraints that are missing or not validated (invariants 1 and 15).
-- writes: nothing
SELECT w.relation || '.' || w.name,
    CASE WHEN c.oid IS NULL THEN 'is missing' ELSE 'was never validated' END
FROM unnest(%(relations)s::text[], %(names)s::text[]) AS w (relation, name)
LEFT JOIN pg_constraint c
    ON c.conrelid = to_regclass(w.relation) AND c.conname = w.name
WHERE c.oid IS NULL OR NOT c.convalidated
