DROP TABLE chrono_target;
