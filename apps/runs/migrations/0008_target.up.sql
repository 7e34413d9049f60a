-- Targets that failed once, or that a person looked after: the circuit and the retry
-- budget of each. What never fails has no row. A row is forgotten a day after the last
-- that was told of it.
CREATE TABLE chrono_target (
    id bigint GENERATED ALWAYS AS IDENTITY,
    tenant integer NOT NULL,
    name text COLLATE "C" NOT NULL,
    state smallint NOT NULL DEFAULT 1,
    failures integer NOT NULL DEFAULT 0,
    changed_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL,
    probe_at timestamptz,
    probes uuid[] NOT NULL DEFAULT '{}',
    let_in integer NOT NULL DEFAULT 0,
    failure_threshold integer NOT NULL,
    open_duration_s integer NOT NULL,
    half_open_probes smallint NOT NULL,
    tokens double precision NOT NULL DEFAULT 0,
    traffic double precision NOT NULL DEFAULT 0,
    budget_at timestamptz NOT NULL DEFAULT 'epoch',
    granted bigint NOT NULL DEFAULT 0,
    refused bigint NOT NULL DEFAULT 0,
    ratio double precision NOT NULL,
    min_concurrent integer NOT NULL,
    changed_by text NOT NULL DEFAULT '',
    note text NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, name),
    CONSTRAINT chrono_target_id UNIQUE (id),
    CONSTRAINT chrono_target_state CHECK (state BETWEEN 1 AND 4),
    CONSTRAINT chrono_target_name CHECK (octet_length(name) BETWEEN 1 AND 1200),
    CONSTRAINT chrono_target_probes CHECK ((state = 3) = (cardinality(probes) > 0))
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 200
);
COMMENT ON COLUMN chrono_target.state IS '1 closed, 2 open, 3 half open, 4 closing';
COMMENT ON COLUMN chrono_target.probe_at IS
    'when probes may go, or others in their place; empty where a person opened it';
-- The few circuits that are not closed.
CREATE INDEX chrono_target_shut ON chrono_target (tenant, name) WHERE state <> 1;
