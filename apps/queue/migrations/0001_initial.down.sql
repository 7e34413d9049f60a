DROP TABLE chrono_blocked;
DROP TABLE chrono_parked;
DROP TABLE chrono_withdrawn;
DROP TABLE chrono_ready;
