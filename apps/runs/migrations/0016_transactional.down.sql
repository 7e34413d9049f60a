SET LOCAL lock_timeout = '2s';
ALTER TABLE chrono_lease DROP COLUMN transactional;
