SET LOCAL lock_timeout = '2s';
DROP INDEX chrono_pass_key;
