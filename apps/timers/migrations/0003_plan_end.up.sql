-- A plan with a number of runs that is over has no timer to keep what is left of them.
-- A new table: what runs beside it knows nothing of it, and ends plans without a row.
CREATE TABLE chrono_plan_end (
    part smallint NOT NULL,
    job_id uuid NOT NULL,
    version integer NOT NULL,
    remaining integer NOT NULL,
    PRIMARY KEY (part, job_id, version),
    CONSTRAINT chrono_plan_end_remaining CHECK (remaining >= 0)
);
COMMENT ON COLUMN chrono_plan_end.remaining IS
    'how many runs were left when the plan was over; 0 where they are used up';
