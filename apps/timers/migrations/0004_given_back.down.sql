DROP TABLE chrono_given_back;
COMMENT ON COLUMN chrono_timer.remaining IS
    'how many runs of the schedule there are left, this one included; empty for any';
