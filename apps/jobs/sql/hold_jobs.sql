-- Let nobody create, change or delete a job until the transaction ends.
-- writes: nothing
-- locks: chrono_job SHARE ROW EXCLUSIVE
LOCK TABLE chrono_job IN SHARE ROW EXCLUSIVE MODE
