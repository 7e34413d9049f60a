DROP TABLE chrono_backfill;
