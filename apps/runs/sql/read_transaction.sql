-- Read which transaction this is; one that had none gets an id.
-- writes: nothing
SELECT pg_current_xact_id()::text
