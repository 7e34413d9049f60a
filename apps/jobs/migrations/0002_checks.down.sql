ALTER TABLE chrono_job_revision
    DROP CONSTRAINT chrono_job_revision_sizes,
    DROP CONSTRAINT chrono_job_revision_payload_depth,
    DROP CONSTRAINT chrono_job_revision_payload_size,
    DROP CONSTRAINT chrono_job_revision_instants;
ALTER TABLE chrono_job DROP CONSTRAINT chrono_job_instants;
