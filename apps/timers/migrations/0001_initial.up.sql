-- Leadership: one row a partition. The fence only rises; the term tells two takeovers
-- apart even where a failover to an old replica hands a fence out again; the epoch
-- rises with every change of what a leader caches.
CREATE SEQUENCE chrono_fence CACHE 1;

CREATE TABLE chrono_partition (
    id smallint PRIMARY KEY,
    fence bigint NOT NULL DEFAULT 0,
    term uuid NOT NULL DEFAULT gen_random_uuid(),
    epoch bigint NOT NULL DEFAULT 1,
    full_epoch bigint NOT NULL DEFAULT 1,
    owner text NOT NULL DEFAULT '',
    taken_at timestamptz,
    CONSTRAINT chrono_partition_id CHECK (id BETWEEN 0 AND 63)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 500
);

INSERT INTO chrono_partition (id) SELECT generate_series(0, 63);

-- What upkeep publishes and everybody who plans or fires reads.
CREATE TABLE chrono_dispatch_state (
    id smallint PRIMARY KEY DEFAULT 1,
    slice smallint NOT NULL DEFAULT 0,
    horizon timestamptz NOT NULL,
    CONSTRAINT chrono_dispatch_state_single CHECK (id = 1),
    CONSTRAINT chrono_dispatch_state_slice CHECK (slice BETWEEN 0 AND 7)
) WITH (fillfactor = 50);

-- The horizon starts in the past: nothing has a bucket until upkeep makes one.
INSERT INTO chrono_dispatch_state (horizon)
VALUES (date_trunc('hour', clock_timestamp(), 'UTC') - interval '2 hours');

-- What comes due. Hourly buckets on due_at, no default partition: DETACH CONCURRENTLY
-- is refused beside one. Rows beyond the horizon wait in chrono_timer_far.
CREATE TABLE chrono_timer (
    due_at timestamptz NOT NULL,
    scheduled_for timestamptz NOT NULL,
    ref uuid NOT NULL,
    job_id uuid NOT NULL,
    prev uuid,
    version integer NOT NULL,
    revision integer NOT NULL,
    attempt_group integer NOT NULL DEFAULT 0,
    part smallint NOT NULL,
    kind smallint NOT NULL,
    attempt smallint NOT NULL DEFAULT 1,
    CONSTRAINT chrono_timer_due_at CHECK (
        due_at >= '1970-01-01Z' AND due_at < '9999-01-01Z'
        AND due_at = due_at::timestamptz(3)
    ),
    CONSTRAINT chrono_timer_scheduled_for CHECK (
        scheduled_for >= '1970-01-01Z' AND scheduled_for < '9999-01-01Z'
        AND scheduled_for = scheduled_for::timestamptz(3)
    ),
    CONSTRAINT chrono_timer_part CHECK (part BETWEEN 0 AND 63),
    CONSTRAINT chrono_timer_kind CHECK (kind BETWEEN 1 AND 4)
) PARTITION BY RANGE (due_at);

COMMENT ON COLUMN chrono_timer.kind IS
    '1 schedule (ref = job), 2 late, 3 manual, 4 retry (ref = run)';
COMMENT ON COLUMN chrono_timer.prev IS
    'the last fired run of the schedule, asked for by overlap skip';

-- Serves load, look and fire.
CREATE UNIQUE INDEX chrono_timer_key
    ON chrono_timer (part, due_at, ref, kind, version);
-- Finds a waiting run; schedule timers, nearly all rows, do not pay for it.
CREATE INDEX chrono_timer_waiting ON chrono_timer (part, ref) WHERE kind <> 1;

CREATE TABLE chrono_timer_far (LIKE chrono_timer INCLUDING ALL);
