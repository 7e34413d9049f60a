-- Delete keys older than a day, some at a time.
-- writes: request_key
-- index: chrono_request_key_created
DELETE FROM chrono_request_key WHERE (tenant, key) IN (
    SELECT tenant, key FROM chrono_request_key
    WHERE created_at < clock_timestamp() - interval '24 hours'
    ORDER BY created_at LIMIT %(limit)s::integer
)
