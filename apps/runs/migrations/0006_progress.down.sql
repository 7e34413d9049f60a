DROP TABLE chrono_lease_end;
DROP TABLE chrono_progress;
