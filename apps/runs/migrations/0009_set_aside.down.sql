ALTER TABLE chrono_worker DROP COLUMN alone;
ALTER TABLE chrono_worker DROP COLUMN crashed;
DROP TABLE chrono_death;
