-- Why a run in execution is called off, where it is not a person who does it.
SET LOCAL lock_timeout = '2s';
ALTER TABLE chrono_lease ADD COLUMN cancel_reason smallint;
