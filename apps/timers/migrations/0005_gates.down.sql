ALTER TABLE chrono_dispatch_state DROP COLUMN gates;
