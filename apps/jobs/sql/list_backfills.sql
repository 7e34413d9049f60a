-- List a job's backfills, newest first, each with how many of its runs still wait.
-- writes: nothing
-- index: chrono_backfill_job, chrono_blocked_backfill
SELECT b.id, floor(extract(epoch FROM b.from_at) * 1000)::bigint,
    floor(extract(epoch FROM b.to_at) * 1000)::bigint, b.revision, b.runs,
    (SELECT count(*) FROM chrono_blocked w WHERE w.backfill = b.id),
    floor(extract(epoch FROM b.created_at) * 1000)::bigint, b.created_by,
    floor(extract(epoch FROM b.cancelled_at) * 1000)::bigint, b.cancelled_by
FROM chrono_backfill b
WHERE b.job_id = %(job)s::uuid AND b.id < %(before)s::uuid
    AND (%(backfill)s::uuid IS NULL OR b.id = %(backfill)s::uuid)
ORDER BY b.id DESC LIMIT %(limit)s::integer
