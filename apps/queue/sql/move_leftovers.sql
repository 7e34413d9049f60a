-- Move what is left in an old slice into the current one.
-- writes: ready
-- moves: ready -> ready
--
-- Rows of low priority would keep every old slice from being truncated. One statement,
-- so that no run is ever absent; SKIP LOCKED, so that claims never wait for it.
WITH chosen AS MATERIALIZED (
    SELECT ctid AS tid FROM {slice} LIMIT %(limit)s::integer FOR UPDATE SKIP LOCKED
), moved AS (
    DELETE FROM {slice} WHERE ctid = ANY(ARRAY(SELECT tid FROM chosen)) RETURNING *
)
INSERT INTO chrono_ready (
    due_at, dispatched_at, run_id, job_id, tag, fence, revision, tenant, part, priority,
    attempt, slice, queue
)
SELECT due_at, dispatched_at, run_id, job_id, tag, fence, revision, tenant, part,
    priority, attempt, %(current)s::smallint, queue
FROM moved
