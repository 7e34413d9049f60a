-- Tell whether a table has no row.
-- writes: nothing
SELECT NOT EXISTS (SELECT FROM {table})
