-- Count what is wrong now, up to a limit.
-- writes: nothing
SELECT count(*) FROM (SELECT FROM chrono_breach LIMIT %(limit)s::integer) AS b
