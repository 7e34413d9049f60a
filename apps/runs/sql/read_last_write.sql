-- Tell about when a day leaf was last written: its last pages hold the newest rows.
-- writes: nothing
SELECT max(finished_at) FROM {leaf}
WHERE ctid >= ('(' || greatest(0, pg_relation_size('{leaf}')
    / current_setting('block_size')::bigint - 8) || ',0)')::tid
