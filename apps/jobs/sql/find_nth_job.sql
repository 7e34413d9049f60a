-- Tell the id of the job at which a look at so many jobs of a list ends.
-- writes: nothing
-- index: chrono_job_living and chrono_job_deleted
SELECT id FROM (
    (
        SELECT tenant, id FROM chrono_job
        WHERE tenant >= %(tenant)s::integer
            AND (tenant, id) < (%(tenant)s::integer, %(before)s::uuid)
            AND deleted_at IS NULL AND %(living)s::boolean
        ORDER BY tenant DESC, id DESC LIMIT %(look)s::integer
    ) UNION ALL (
        SELECT tenant, id FROM chrono_job
        WHERE tenant >= %(tenant)s::integer
            AND (tenant, id) < (%(tenant)s::integer, %(before)s::uuid)
            AND deleted_at IS NOT NULL AND %(deleted)s::boolean
        ORDER BY tenant DESC, id DESC LIMIT %(look)s::integer
    )
) AS several
ORDER BY tenant DESC, id DESC OFFSET %(look)s::integer - 1 LIMIT 1
