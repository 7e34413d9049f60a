-- What is validated need not become unvalidated: the constraint itself goes next.
SELECT 1;
