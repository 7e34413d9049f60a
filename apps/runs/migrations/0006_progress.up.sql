-- What running runs tell of themselves: how far they are, and from where another
-- attempt may go on. Only runs that tell something have a row.
CREATE TABLE chrono_progress (
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    checkpoint_at timestamptz,
    run_id uuid NOT NULL,
    part smallint NOT NULL,
    attempt smallint NOT NULL,
    share real,
    text text,
    checkpoint jsonb,
    PRIMARY KEY (run_id, part),
    CONSTRAINT chrono_progress_share CHECK (share BETWEEN 0 AND 1),
    CONSTRAINT chrono_progress_text CHECK (char_length(text) <= 200),
    CONSTRAINT chrono_progress_checkpoint CHECK (pg_column_size(checkpoint) <= 65536)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- Executions that were ended from outside, told to their worker by its next beats.
CREATE TABLE chrono_lease_end (
    ended_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    worker uuid NOT NULL,
    run_id uuid NOT NULL,
    PRIMARY KEY (worker, run_id)
);

COMMENT ON COLUMN chrono_lease.checkpoint IS 'unused: see chrono_progress';
