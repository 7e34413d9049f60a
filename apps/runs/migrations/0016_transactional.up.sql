-- Whether all that an execution does is rolled back unless it settles its run itself.
SET LOCAL lock_timeout = '2s';
ALTER TABLE chrono_lease ADD COLUMN transactional boolean NOT NULL DEFAULT false;
