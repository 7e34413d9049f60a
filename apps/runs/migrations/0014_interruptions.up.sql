-- How often a run was stopped together with its worker and no attempt was spent.
SET LOCAL lock_timeout = '2s';
ALTER TABLE chrono_death ADD COLUMN interruptions smallint NOT NULL DEFAULT 0;
