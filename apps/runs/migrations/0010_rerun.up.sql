-- Which run runs a finished one's occurrence again: each is followed by one at most.
CREATE TABLE chrono_rerun (
    part smallint NOT NULL,
    run_id uuid NOT NULL,
    rerun_id uuid NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_by text NOT NULL,
    CONSTRAINT chrono_rerun_pkey PRIMARY KEY (part, run_id),
    CONSTRAINT chrono_rerun_of UNIQUE (part, rerun_id)
);
CREATE INDEX chrono_rerun_made ON chrono_rerun (made_at);

-- What somebody did about a dead letter: the run itself stays as it is.
SET LOCAL lock_timeout = '2s';
ALTER TABLE chrono_dead_letter
    ADD COLUMN closed smallint,
    ADD COLUMN closed_at timestamptz,
    ADD COLUMN closed_by text,
    ADD COLUMN note text,
    ADD COLUMN noted_at timestamptz,
    ADD COLUMN noted_by text;
COMMENT ON COLUMN chrono_dead_letter.closed IS '1 run again, 2 discarded; empty is open';

-- A run that is run again may wait in another queue than its job's. Nearly empty.
ALTER TABLE chrono_run_input
    ADD COLUMN queue text COLLATE "C",
    DROP CONSTRAINT chrono_run_input_some,
    ADD CONSTRAINT chrono_run_input_some
        CHECK (num_nonnulls(payload, priority, queue) > 0);
