DROP TABLE chrono_queue_pause;
