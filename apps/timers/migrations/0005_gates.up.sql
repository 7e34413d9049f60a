-- A number that every opening and shutting of a gate raises: who fires and who claims
-- learn by it, in answers that they get anyway, that there is something to be read.
SET LOCAL lock_timeout = '2s';
ALTER TABLE chrono_dispatch_state ADD COLUMN gates bigint NOT NULL DEFAULT 0;
