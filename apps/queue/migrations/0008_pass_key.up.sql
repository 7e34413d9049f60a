-- Finds the passes of a key whatever limits let them in: the gate without its limit. The
-- table has no more rows than runs were let in lately.
SET LOCAL lock_timeout = '2s';
CREATE INDEX chrono_pass_key ON chrono_pass (
    regexp_replace(gate, '^(concurrency_limit/[0-9]+/)[0-9]+/', '\1*/')
) WHERE starts_with(gate, 'concurrency_limit/');
