-- The ledger: one row for every decided occurrence, fired or skipped. Its primary key
-- is the wall against a second run of the same instant. Insert-only.
CREATE TABLE chrono_occurrence (
    scheduled_for timestamptz NOT NULL,
    decided_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    job_id uuid NOT NULL,
    run_id uuid,
    fence bigint NOT NULL,
    version integer NOT NULL,
    revision integer NOT NULL,
    attempt_group integer NOT NULL DEFAULT 0,
    part smallint NOT NULL,
    outcome smallint NOT NULL,
    kind smallint NOT NULL,
    reason smallint,
    occurrences integer,
    last_scheduled_for timestamptz,
    PRIMARY KEY (part, job_id, scheduled_for, attempt_group),
    CONSTRAINT chrono_occurrence_scheduled_for CHECK (
        scheduled_for >= '1970-01-01Z' AND scheduled_for < '9999-01-01Z'
        AND scheduled_for = scheduled_for::timestamptz(3)
    ),
    CONSTRAINT chrono_occurrence_outcome CHECK (
        (outcome = 1 AND reason IS NULL AND run_id IS NOT NULL)
        OR (outcome = 2 AND reason IS NOT NULL)
    ),
    CONSTRAINT chrono_occurrence_range CHECK (
        (occurrences IS NULL) = (last_scheduled_for IS NULL)
        AND (occurrences IS NULL OR outcome = 2)
        AND last_scheduled_for > scheduled_for
    )
) PARTITION BY RANGE (scheduled_for);
COMMENT ON COLUMN chrono_occurrence.outcome IS '1 fired, 2 skipped';
COMMENT ON COLUMN chrono_occurrence.attempt_group IS
    '0 belongs to the schedule; manual, backfilled and redriven runs take 1 and up';
COMMENT ON COLUMN chrono_occurrence.occurrences IS
    'how many equal skips this row stands for, up to last_scheduled_for; empty for one';
CREATE TABLE chrono_occurrence_default PARTITION OF chrono_occurrence DEFAULT;

-- Who executes what now: the ready row, the token of this one execution, the worker.
CREATE TABLE chrono_lease (
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
    token uuid NOT NULL,
    worker uuid NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    cancel boolean NOT NULL DEFAULT false,
    checkpoint jsonb,
    PRIMARY KEY (run_id, part),
    CONSTRAINT chrono_lease_checkpoint CHECK (pg_column_size(checkpoint) <= 65536)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
-- The beat of a worker asks for the cancelled ones among its own.
CREATE INDEX chrono_lease_cancel ON chrono_lease (worker) WHERE cancel;

-- Settled runs. Insert-only: a state once written is final. The id begins with the
-- milliseconds of scheduled_for, so a day of ids is a day of occurrences.
CREATE TABLE chrono_run (
    due_at timestamptz NOT NULL,
    dispatched_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz NOT NULL,
    id uuid NOT NULL,
    job_id uuid NOT NULL,
    worker uuid,
    fence bigint NOT NULL,
    revision integer NOT NULL,
    tenant integer NOT NULL,
    part smallint NOT NULL,
    state smallint NOT NULL,
    reason smallint,
    priority smallint,
    attempt smallint NOT NULL,
    queue text COLLATE "C",
    result jsonb,
    PRIMARY KEY (id, part),
    CONSTRAINT chrono_run_state CHECK (state BETWEEN 1 AND 6),
    CONSTRAINT chrono_run_result CHECK (pg_column_size(result) <= 65536)
) PARTITION BY RANGE (id);
COMMENT ON COLUMN chrono_run.state IS
    '1 success, 2 failed, 3 dead, 4 cancelled, 5 skipped, 6 unknown';
CREATE TABLE chrono_run_default PARTITION OF chrono_run DEFAULT;
-- A tenant's history, newest first.
CREATE INDEX chrono_run_tenant ON chrono_run (tenant, id);
-- What went wrong, newest first; successes do not pay for it.
CREATE INDEX chrono_run_not_success ON chrono_run (state, id) WHERE state <> 1;

-- The few runs that outlive the day they lie in: all but successes.
CREATE TABLE chrono_run_kept (LIKE chrono_run INCLUDING ALL);
CREATE INDEX chrono_run_kept_finished ON chrono_run_kept (finished_at);

-- Failed attempts only, with their error.
CREATE TABLE chrono_attempt (
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    run_id uuid NOT NULL,
    worker uuid NOT NULL,
    fence bigint NOT NULL,
    part smallint NOT NULL,
    attempt smallint NOT NULL,
    reason smallint NOT NULL,
    error text NOT NULL,
    PRIMARY KEY (run_id, part, attempt)
) PARTITION BY RANGE (run_id);
CREATE TABLE chrono_attempt_default PARTITION OF chrono_attempt DEFAULT;
CREATE TABLE chrono_attempt_kept (LIKE chrono_attempt INCLUDING ALL);
CREATE INDEX chrono_attempt_kept_finished ON chrono_attempt_kept (finished_at);

-- A run that used up its attempts, with all that is needed to run it again.
CREATE TABLE chrono_dead_letter (
    run_id uuid NOT NULL,
    part smallint NOT NULL,
    tenant integer NOT NULL,
    job_id uuid NOT NULL,
    revision integer NOT NULL,
    queue text COLLATE "C" NOT NULL,
    reason smallint NOT NULL,
    attempt smallint NOT NULL,
    died_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    payload jsonb,
    errors jsonb NOT NULL,
    PRIMARY KEY (run_id, part)
);
CREATE INDEX chrono_dead_letter_tenant ON chrono_dead_letter (tenant, run_id);
CREATE INDEX chrono_dead_letter_died ON chrono_dead_letter (died_at);

-- A run's own input where it differs from its revision's payload.
CREATE TABLE chrono_run_input (
    part smallint NOT NULL,
    run_id uuid NOT NULL,
    payload jsonb NOT NULL,
    PRIMARY KEY (part, run_id),
    CONSTRAINT chrono_run_input_payload CHECK (pg_column_size(payload) <= 262144)
);

-- Live runs that count against a job's overlap bound besides the schedule's own.
CREATE TABLE chrono_slot (
    part smallint NOT NULL,
    job_id uuid NOT NULL,
    run_id uuid NOT NULL,
    PRIMARY KEY (part, job_id, run_id)
);

-- A person's verdict on a run; the run itself is never updated.
CREATE TABLE chrono_resolution (
    run_id uuid NOT NULL,
    part smallint NOT NULL,
    state smallint NOT NULL,
    actor text NOT NULL,
    note text NOT NULL,
    resolved_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, part),
    CONSTRAINT chrono_resolution_state CHECK (state IN (1, 2))
);

-- One row for each start of a worker process. A lease whose worker row is stale or
-- missing is dead.
CREATE TABLE chrono_worker (
    id uuid PRIMARY KEY,
    beat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    stopped_at timestamptz,
    dead boolean NOT NULL DEFAULT false,
    host text NOT NULL,
    pid integer NOT NULL,
    concurrency integer NOT NULL,
    queues text[] NOT NULL
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 200
);
