SET LOCAL lock_timeout = '2s';
ALTER TABLE chrono_death DROP COLUMN interruptions;
