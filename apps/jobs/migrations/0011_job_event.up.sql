-- What the keeper noticed of jobs: append-only, kept for ninety days. New tables: what
-- runs beside them knows nothing of them.
CREATE TABLE chrono_job_event (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    tenant integer NOT NULL,
    job_id uuid NOT NULL,
    run_id uuid,
    part smallint NOT NULL,
    kind smallint NOT NULL,
    over boolean NOT NULL,
    detail text NOT NULL,
    CONSTRAINT chrono_job_event_kind CHECK (kind BETWEEN 1 AND 3)
);
COMMENT ON COLUMN chrono_job_event.kind IS '1 late, 2 long, 3 no success';
COMMENT ON COLUMN chrono_job_event.over IS 'false where it began, true where it ended';
CREATE INDEX chrono_job_event_tenant ON chrono_job_event (tenant, id);
CREATE INDEX chrono_job_event_job ON chrono_job_event (job_id, id);

-- What was noticed and is not over, so that it is told once. The run is the zero uuid
-- where the whole job is meant.
CREATE TABLE chrono_breach (
    job_id uuid NOT NULL,
    kind smallint NOT NULL,
    run_id uuid NOT NULL,
    tenant integer NOT NULL,
    part smallint NOT NULL,
    since timestamptz NOT NULL,
    detail text NOT NULL,
    PRIMARY KEY (job_id, kind, run_id)
);

-- The last success that is known of a job with max_time_since_success, and when it was
-- looked for: between two looks nothing is read of its runs.
CREATE TABLE chrono_watched (
    job_id uuid PRIMARY KEY,
    succeeded_at timestamptz,
    looked_at timestamptz NOT NULL
) WITH (fillfactor = 70);
