-- The names of the tasks that a worker knows; NULL where its release does not say.
SET LOCAL lock_timeout = '2s';
ALTER TABLE chrono_worker ADD COLUMN tasks text[];
