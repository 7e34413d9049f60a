-- Name constraints, unique indexes and triggers that are not in force (1, 14 and 15).
-- writes: nothing
SELECT w.relation || '.' || w.name, CASE
    WHEN c.oid IS NOT NULL THEN 'was never validated'
    WHEN i.indexrelid IS NOT NULL THEN 'is no valid unique index'
    WHEN t.oid IS NOT NULL THEN 'is switched off for some sessions'
    ELSE 'is missing' END
FROM unnest(%(relations)s::text[], %(names)s::text[]) AS w (relation, name)
LEFT JOIN pg_constraint c
    ON c.conrelid = to_regclass(w.relation) AND c.conname = w.name
LEFT JOIN pg_index i
    ON i.indrelid = to_regclass(w.relation) AND i.indexrelid = to_regclass(w.name)
LEFT JOIN pg_trigger t ON t.tgrelid = to_regclass(w.relation) AND t.tgname = w.name
WHERE c.convalidated IS NOT TRUE AND (i.indisunique AND i.indisvalid) IS NOT TRUE
    AND (t.tgenabled = 'A') IS NOT TRUE
