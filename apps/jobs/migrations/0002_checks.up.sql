-- What would break a reader of many rows is refused where it is written: an infinite
-- instant, a value nested too deep or too long.
SET LOCAL lock_timeout = '2s';
ALTER TABLE chrono_job
    ADD CONSTRAINT chrono_job_instants CHECK (
        activated_at >= '1970-01-01Z' AND activated_at < '9999-01-01Z'
        AND created_at >= '1970-01-01Z' AND created_at < '9999-01-01Z'
        AND updated_at >= '1970-01-01Z' AND updated_at < '9999-01-01Z'
        AND (deleted_at IS NULL
            OR deleted_at >= '1970-01-01Z' AND deleted_at < '9999-01-01Z')
    );
ALTER TABLE chrono_job_revision
    ADD CONSTRAINT chrono_job_revision_instants CHECK (
        created_at >= '1970-01-01Z' AND created_at < '9999-01-01Z'
    ),
    ADD CONSTRAINT chrono_job_revision_payload_size CHECK (
        octet_length(payload::text) <= 262144
    ),
    ADD CONSTRAINT chrono_job_revision_payload_depth CHECK (
        NOT jsonb_path_exists(
            payload, 'strict $.**{32} ? (@.type() == "object" || @.type() == "array")'
        )
    ),
    ADD CONSTRAINT chrono_job_revision_sizes CHECK (
        octet_length(schedule::text) <= 16384 AND octet_length(target::text) <= 262144
        AND octet_length(retry_policy::text) <= 16384
    );
