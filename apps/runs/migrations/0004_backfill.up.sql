-- What people asked to be run again of the past. Its runs wait in chrono_blocked.
CREATE TABLE chrono_backfill (
    id uuid PRIMARY KEY,
    tenant integer NOT NULL,
    job_id uuid NOT NULL,
    part smallint NOT NULL,
    revision integer NOT NULL,
    from_at timestamptz NOT NULL,
    to_at timestamptz NOT NULL,
    runs integer NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    cancelled_at timestamptz,
    cancelled_by text NOT NULL DEFAULT '',
    CONSTRAINT chrono_backfill_range CHECK (from_at < to_at)
);
-- A job's backfills, newest first: ids sort by time.
CREATE INDEX chrono_backfill_job ON chrono_backfill (job_id, id);
-- Days that a backfill may still write into are not dropped.
CREATE INDEX chrono_backfill_created ON chrono_backfill (created_at);
