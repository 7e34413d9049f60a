DROP TABLE chrono_request_key;
