-- Name those of some run ids that a run has or had, wherever something tells of it.
-- writes: nothing
-- index: chrono_rerun_of, chrono_run_pkey, chrono_run_kept_pkey, chrono_dead_letter_pkey,
-- chrono_timer_waiting
SELECT rerun_id FROM chrono_rerun
WHERE part = ANY(%(parts)s::smallint[]) AND rerun_id = ANY(%(runs)s::uuid[])
UNION SELECT id FROM chrono_run WHERE id = ANY(%(runs)s::uuid[])
UNION SELECT id FROM chrono_run_kept WHERE id = ANY(%(runs)s::uuid[])
UNION SELECT run_id FROM chrono_dead_letter WHERE run_id = ANY(%(runs)s::uuid[])
UNION SELECT ref FROM chrono_timer
WHERE part = ANY(%(parts)s::smallint[]) AND ref = ANY(%(runs)s::uuid[]) AND kind <> 1
UNION SELECT ref FROM chrono_timer_far
WHERE part = ANY(%(parts)s::smallint[]) AND ref = ANY(%(runs)s::uuid[]) AND kind <> 1
