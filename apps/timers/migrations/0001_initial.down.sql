DROP TABLE chrono_timer_far;
DROP TABLE chrono_timer;
DROP TABLE chrono_dispatch_state;
DROP TABLE chrono_partition;
DROP SEQUENCE chrono_fence;
