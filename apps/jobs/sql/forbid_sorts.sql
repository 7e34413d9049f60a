-- Have the open transaction read in the order of its indexes, and never sort.
-- writes: nothing
--
-- A LIMIT bounds only what is read in order. Where the planner expects few rows it
-- rather reads all of them and sorts.
SELECT set_config('enable_sort', 'off', true)
