-- Note that nothing comes any more of workers that are dead.
-- writes: worker
UPDATE chrono_worker SET swept = true WHERE id = ANY(%(workers)s::uuid[]) AND dead
