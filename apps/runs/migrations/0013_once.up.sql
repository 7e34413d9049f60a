-- What tasks did once: under which key, whose execution did it or is at it, and with
-- which answer. The owner is a run, or a job for what its runs share.
CREATE TABLE chrono_once (
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    done_at timestamptz,
    expires_at timestamptz NOT NULL,
    owner uuid NOT NULL,
    run_id uuid NOT NULL,
    token uuid NOT NULL,
    part smallint NOT NULL,
    key text COLLATE "C" NOT NULL,
    result jsonb,
    PRIMARY KEY (owner, part, key),
    CONSTRAINT chrono_once_key CHECK (char_length(key) BETWEEN 1 AND 200),
    CONSTRAINT chrono_once_result CHECK (pg_column_size(result) <= 65536)
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000
);
-- Finds what is kept no longer.
CREATE INDEX chrono_once_expires ON chrono_once (expires_at);
