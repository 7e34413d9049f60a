-- The queues whose runs of a tenant are held. Nearly always empty.
CREATE TABLE chrono_queue_pause (
    id bigint GENERATED ALWAYS AS IDENTITY,
    tenant integer NOT NULL,
    queue text COLLATE "C" NOT NULL,
    paused_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    paused_by text NOT NULL,
    note text NOT NULL,
    PRIMARY KEY (tenant, queue),
    CONSTRAINT chrono_queue_pause_id UNIQUE (id)
);
