DROP TABLE chrono_plan_end;
