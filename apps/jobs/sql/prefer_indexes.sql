-- Have the statements of the open transaction go by indexes, whatever statistics say.
-- writes: nothing
--
-- What is under way and what is wrong is nearly nothing in one minute and very much in
-- the next: a plan that was made and kept over empty tables must do for full ones.
SELECT set_config('enable_' || node, 'off', true)
FROM unnest(ARRAY['seqscan', 'bitmapscan', 'hashjoin', 'mergejoin']) AS n (node)
