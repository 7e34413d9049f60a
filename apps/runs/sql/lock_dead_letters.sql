-- Lock dead letters of a tenant, or of any, against what else is done about them.
-- writes: nothing
-- locks: dead_letter rows in order of their ids FOR UPDATE
-- index: chrono_dead_letter_pkey
--
-- Read them in a later statement: after a wait this one has the state before it.
SELECT run_id FROM chrono_dead_letter
WHERE run_id = ANY(%(runs)s::uuid[])
    AND (%(tenant)s::integer IS NULL OR tenant = %(tenant)s::integer)
ORDER BY run_id FOR UPDATE
