-- Have every statement of this transaction see the same, and write nothing.
-- writes: nothing
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY
