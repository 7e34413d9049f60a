-- Claim the first runs of a queue, lowest (priority, tag) over all slices.
-- From (`least`, `after`) on: what lies before is passed over, dead rows too.
-- writes: ready lease
-- moves: ready -> running
-- index: chrono_ready_order on every slice
--
-- It locks only what it takes and takes what it locks. Each row gets a token of its
-- own: one a statement would let a repeated settle finish a live second attempt. They
-- come in made, `limit` of them: by gen_random_uuid() each costs a fifth of a claim where
-- the server was built without OpenSSL. The number of the gates is read once: what was
-- shut before it began is known by it.
WITH chosen AS MATERIALIZED (
    SELECT r.tableoid AS slice, r.ctid AS tid FROM chrono_ready r
    WHERE r.queue = %(queue)s::text
        AND (r.priority, r.tag) >= (%(least)s::smallint, %(after)s::bigint)
        AND NOT EXISTS (
            SELECT FROM chrono_withdrawn w
            WHERE w.run_id = r.run_id AND w.part = r.part
        )
    ORDER BY r.priority, r.tag LIMIT %(limit)s::integer
    FOR UPDATE OF r SKIP LOCKED
), moved_0 AS (
    DELETE FROM chrono_ready_0 WHERE ctid = ANY(ARRAY(
        SELECT tid FROM chosen WHERE slice = 'chrono_ready_0'::regclass
    )) RETURNING *
), moved_1 AS (
    DELETE FROM chrono_ready_1 WHERE ctid = ANY(ARRAY(
        SELECT tid FROM chosen WHERE slice = 'chrono_ready_1'::regclass
    )) RETURNING *
), moved_2 AS (
    DELETE FROM chrono_ready_2 WHERE ctid = ANY(ARRAY(
        SELECT tid FROM chosen WHERE slice = 'chrono_ready_2'::regclass
    )) RETURNING *
), moved_3 AS (
    DELETE FROM chrono_ready_3 WHERE ctid = ANY(ARRAY(
        SELECT tid FROM chosen WHERE slice = 'chrono_ready_3'::regclass
    )) RETURNING *
), moved_4 AS (
    DELETE FROM chrono_ready_4 WHERE ctid = ANY(ARRAY(
        SELECT tid FROM chosen WHERE slice = 'chrono_ready_4'::regclass
    )) RETURNING *
), moved_5 AS (
    DELETE FROM chrono_ready_5 WHERE ctid = ANY(ARRAY(
        SELECT tid FROM chosen WHERE slice = 'chrono_ready_5'::regclass
    )) RETURNING *
), moved_6 AS (
    DELETE FROM chrono_ready_6 WHERE ctid = ANY(ARRAY(
        SELECT tid FROM chosen WHERE slice = 'chrono_ready_6'::regclass
    )) RETURNING *
), moved_7 AS (
    DELETE FROM chrono_ready_7 WHERE ctid = ANY(ARRAY(
        SELECT tid FROM chosen WHERE slice = 'chrono_ready_7'::regclass
    )) RETURNING *
), moved AS (
    SELECT * FROM moved_0
    UNION ALL SELECT * FROM moved_1
    UNION ALL SELECT * FROM moved_2
    UNION ALL SELECT * FROM moved_3
    UNION ALL SELECT * FROM moved_4
    UNION ALL SELECT * FROM moved_5
    UNION ALL SELECT * FROM moved_6
    UNION ALL SELECT * FROM moved_7
)
INSERT INTO chrono_lease (
    due_at, dispatched_at, run_id, job_id, tag, fence, revision, tenant, part, priority,
    attempt, queue, token, worker
)
SELECT due_at, dispatched_at, run_id, job_id, tag, fence, revision, tenant, part,
    priority, attempt, queue, (%(tokens)s::uuid[])[row_number() OVER ()],
    %(worker)s::uuid
FROM moved
RETURNING run_id, part, job_id, revision, tenant, attempt, fence, token,
    job_id = ANY(ARRAY(
        SELECT j.id FROM chrono_job j
        WHERE j.id = ANY(ARRAY(SELECT job_id FROM moved)) AND j.deleted_at IS NOT NULL
    )), (SELECT gates FROM chrono_dispatch_state WHERE id = 1), priority, tag
