-- Runs waiting for a worker, narrow, in a ring of eight slices. A slice is emptied by
-- claims and truncated by upkeep, so dead rows never pile up under a claim, whatever
-- old transaction somebody keeps open. Rows are never updated.
CREATE TABLE chrono_ready (
    due_at timestamptz NOT NULL,
    dispatched_at timestamptz NOT NULL,
    run_id uuid NOT NULL,
    job_id uuid NOT NULL,
    tag bigint NOT NULL,
    fence bigint NOT NULL,
    revision integer NOT NULL,
    tenant integer NOT NULL,
    part smallint NOT NULL,
    priority smallint NOT NULL,
    attempt smallint NOT NULL,
    slice smallint NOT NULL,
    queue text COLLATE "C" NOT NULL
) PARTITION BY LIST (slice);

CREATE TABLE chrono_ready_0 PARTITION OF chrono_ready FOR VALUES IN (0)
WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE TABLE chrono_ready_1 PARTITION OF chrono_ready FOR VALUES IN (1)
WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE TABLE chrono_ready_2 PARTITION OF chrono_ready FOR VALUES IN (2)
WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE TABLE chrono_ready_3 PARTITION OF chrono_ready FOR VALUES IN (3)
WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE TABLE chrono_ready_4 PARTITION OF chrono_ready FOR VALUES IN (4)
WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE TABLE chrono_ready_5 PARTITION OF chrono_ready FOR VALUES IN (5)
WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE TABLE chrono_ready_6 PARTITION OF chrono_ready FOR VALUES IN (6)
WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE TABLE chrono_ready_7 PARTITION OF chrono_ready FOR VALUES IN (7)
WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- Claims take the lowest (priority, tag) of a queue over all slices.
CREATE INDEX chrono_ready_order ON chrono_ready (queue, priority, tag);

-- Cancelled runs that may still lie in chrono_ready or wait for a retry: claim and
-- fire leave them out by key. Nearly always empty.
CREATE TABLE chrono_withdrawn (
    run_id uuid NOT NULL,
    part smallint NOT NULL,
    withdrawn_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, part)
);

-- Runs set aside while their target is sick.
CREATE TABLE chrono_parked (
    due_at timestamptz NOT NULL,
    dispatched_at timestamptz NOT NULL,
    run_id uuid NOT NULL,
    job_id uuid NOT NULL,
    tag bigint NOT NULL,
    fence bigint NOT NULL,
    revision integer NOT NULL,
    tenant integer NOT NULL,
    part smallint NOT NULL,
    priority smallint NOT NULL,
    attempt smallint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    target text NOT NULL,
    reason smallint NOT NULL,
    PRIMARY KEY (run_id, part)
);
CREATE INDEX chrono_parked_target ON chrono_parked (target, due_at);

-- Runs that a gate (a limit, a pause) keeps out of chrono_ready.
CREATE TABLE chrono_blocked (
    due_at timestamptz NOT NULL,
    dispatched_at timestamptz NOT NULL,
    run_id uuid NOT NULL,
    job_id uuid NOT NULL,
    tag bigint NOT NULL,
    fence bigint NOT NULL,
    revision integer NOT NULL,
    tenant integer NOT NULL,
    part smallint NOT NULL,
    priority smallint NOT NULL,
    attempt smallint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    gate text NOT NULL,
    reason smallint NOT NULL,
    PRIMARY KEY (run_id, part)
);
CREATE INDEX chrono_blocked_gate ON chrono_blocked (gate, due_at);
