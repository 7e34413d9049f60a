-- Whether sessions of the worker hold its identity, so that their end is its end. A
-- worker of an older version does not say so: there the lease alone decides.
SET LOCAL lock_timeout = '2s';
ALTER TABLE chrono_worker ADD COLUMN held boolean NOT NULL DEFAULT false;
-- Whether all that a dead one left is offered again.
ALTER TABLE chrono_worker ADD COLUMN swept boolean NOT NULL DEFAULT false;
-- What the sweep looks at each second, however many workers there were.
CREATE INDEX chrono_worker_unswept ON chrono_worker (id) WHERE NOT swept;
