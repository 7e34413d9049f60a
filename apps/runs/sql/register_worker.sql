-- Write the row of a worker process that starts.
-- writes: worker
INSERT INTO chrono_worker (id, host, pid, concurrency, queues, held, alone, tasks)
VALUES (
    %(worker)s::uuid, %(host)s::text, %(pid)s::integer, %(concurrency)s::integer,
    %(queues)s::text[], %(held)s::boolean, %(alone)s::boolean,
    %(tasks)s::text[]
)
