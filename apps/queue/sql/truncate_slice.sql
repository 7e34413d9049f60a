-- Truncate a slice that a look under its lock found empty.
-- writes: ready
TRUNCATE {slice}
