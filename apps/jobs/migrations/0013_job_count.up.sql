-- How many jobs that are not deleted a tenant has, kept for those with a quota of them.
-- Kept by the database itself, so that what old code does beside it is counted, too.
SET LOCAL lock_timeout = '2s';
CREATE TABLE chrono_job_count (
    tenant integer PRIMARY KEY,
    jobs integer NOT NULL CONSTRAINT chrono_job_count_jobs CHECK (jobs >= 0)
) WITH (fillfactor = 50);

-- By statement, so that 500 jobs change a number once; and a change that leaves the
-- number as it is (a pause) does not touch it. Where no tenant has a quota it ends with
-- a look at an empty table.
CREATE FUNCTION chrono_count_jobs() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moved record;
BEGIN
    IF NOT EXISTS (SELECT FROM public.chrono_job_count) THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' THEN
        FOR moved IN
            SELECT tenant, count(*) AS jobs FROM fresh
            WHERE deleted_at IS NULL GROUP BY tenant ORDER BY tenant
        LOOP
            UPDATE public.chrono_job_count c SET jobs = c.jobs + moved.jobs
            WHERE c.tenant = moved.tenant;
        END LOOP;
    ELSIF TG_OP = 'UPDATE' THEN
        FOR moved IN
            SELECT u.tenant, sum(u.n) AS jobs FROM (
                SELECT tenant, 1 AS n FROM fresh WHERE deleted_at IS NULL
                UNION ALL
                SELECT tenant, -1 FROM stale WHERE deleted_at IS NULL
            ) u GROUP BY u.tenant HAVING sum(u.n) <> 0 ORDER BY u.tenant
        LOOP
            UPDATE public.chrono_job_count c SET jobs = c.jobs + moved.jobs
            WHERE c.tenant = moved.tenant;
        END LOOP;
    ELSE
        FOR moved IN
            SELECT tenant, count(*) AS jobs FROM stale
            WHERE deleted_at IS NULL GROUP BY tenant ORDER BY tenant
        LOOP
            UPDATE public.chrono_job_count c SET jobs = c.jobs - moved.jobs
            WHERE c.tenant = moved.tenant;
        END LOOP;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER chrono_job_inserted AFTER INSERT ON chrono_job
    REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION chrono_count_jobs();
CREATE TRIGGER chrono_job_updated AFTER UPDATE ON chrono_job
    REFERENCING NEW TABLE AS fresh OLD TABLE AS stale
    FOR EACH STATEMENT EXECUTE FUNCTION chrono_count_jobs();
CREATE TRIGGER chrono_job_removed AFTER DELETE ON chrono_job
    REFERENCING OLD TABLE AS stale
    FOR EACH STATEMENT EXECUTE FUNCTION chrono_count_jobs();
-- ALWAYS: a session in replica mode makes and deletes jobs, too.
ALTER TABLE chrono_job
    ENABLE ALWAYS TRIGGER chrono_job_inserted,
    ENABLE ALWAYS TRIGGER chrono_job_updated,
    ENABLE ALWAYS TRIGGER chrono_job_removed;
