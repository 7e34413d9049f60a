DROP TABLE chrono_once;
