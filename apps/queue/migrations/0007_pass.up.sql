-- Runs that were let in by the gate of a limit. A row counts against a number of runs at
-- once while its run is ready or leased, against a rate for as long as the rate says.
SET LOCAL lock_timeout = '2s';
CREATE TABLE chrono_pass (
    gate text COLLATE "C" NOT NULL,
    admitted_at timestamptz NOT NULL,
    run_id uuid NOT NULL,
    part smallint NOT NULL,
    PRIMARY KEY (gate, admitted_at, run_id, part)
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000
);
CREATE INDEX chrono_pass_admitted ON chrono_pass (admitted_at);
-- What a run has to pass behind the gate at which it waits.
ALTER TABLE chrono_blocked ADD COLUMN gates_left text[];
