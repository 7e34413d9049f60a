ALTER TABLE chrono_blocked DROP COLUMN gates_left;
DROP TABLE chrono_pass;
