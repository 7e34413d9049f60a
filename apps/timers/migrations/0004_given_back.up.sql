-- What an edit leaves to be run late has taken a run off its job's number; where it is
-- skipped after all, it gives that run back. Nearly always empty: the keeper of the
-- tables plans such a job anew. A new table: what runs beside it knows nothing of it.
CREATE TABLE chrono_given_back (
    part smallint NOT NULL,
    job_id uuid NOT NULL,
    run_id uuid NOT NULL,
    PRIMARY KEY (part, job_id, run_id)
);
COMMENT ON COLUMN chrono_timer.remaining IS
    'how many runs of the schedule there are left, this one included; empty for any; '
    'of a late one 1 where it has taken a run off, else empty';
