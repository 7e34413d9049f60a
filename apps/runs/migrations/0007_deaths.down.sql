DROP INDEX chrono_worker_unswept;
ALTER TABLE chrono_worker DROP COLUMN swept;
ALTER TABLE chrono_worker DROP COLUMN held;
