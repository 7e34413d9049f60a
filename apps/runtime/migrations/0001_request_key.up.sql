-- What was answered to a request that a client may send again. Written in the
-- transaction of the effect, so that neither is there without the other.
CREATE TABLE chrono_request_key (
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    tenant integer NOT NULL,
    status smallint NOT NULL,
    key text COLLATE "C" NOT NULL,
    method text NOT NULL,
    path text NOT NULL,
    fingerprint bytea NOT NULL,
    headers json NOT NULL,
    answer json NOT NULL,
    PRIMARY KEY (tenant, key),
    CONSTRAINT chrono_request_key_key CHECK (length(key) BETWEEN 1 AND 255),
    CONSTRAINT chrono_request_key_fingerprint CHECK (octet_length(fingerprint) = 32)
);
COMMENT ON COLUMN chrono_request_key.answer IS
    'json, not jsonb: a repeated answer has its names in the same order';
-- Serves the purge of what is older than a day.
CREATE INDEX chrono_request_key_created ON chrono_request_key (created_at);
