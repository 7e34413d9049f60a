-- Count the rows of a slice, up to a limit.
-- writes: nothing
SELECT count(*) FROM (SELECT FROM {slice} LIMIT %(limit)s::integer) AS r
