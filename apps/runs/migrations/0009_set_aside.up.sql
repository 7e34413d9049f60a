-- How often the process of a run died under it. Only runs that this befell have a row.
CREATE TABLE chrono_death (
    died_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    run_id uuid NOT NULL,
    part smallint NOT NULL,
    deaths smallint NOT NULL DEFAULT 1,
    PRIMARY KEY (run_id, part)
);
SET LOCAL lock_timeout = '2s';
-- Whether the process of a dead worker is known to have died, not only to be silent.
ALTER TABLE chrono_worker ADD COLUMN crashed boolean NOT NULL DEFAULT false;
-- Whether it executes one run at a time, of those that were set aside.
ALTER TABLE chrono_worker ADD COLUMN alone boolean NOT NULL DEFAULT false;
