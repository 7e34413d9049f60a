"""One execution of one occurrence: lease, attempts, settling, history.

Tables: ``chrono_occurrence`` (the ledger), ``chrono_lease``, ``chrono_run`` and
``chrono_attempt`` by day, ``chrono_dead_letter``, ``chrono_withdrawn``'s readers,
``chrono_worker`` and the small ones beside them.

Invariants: a run lies in exactly one of timer, ready, parked, blocked, lease and run
(a cancelled one may still lie in ready beside its final row, withdrawn); nothing ever
updates ``chrono_run``; every write of a worker is guarded by its lease's token.

Called by worker (claim, beat, settle), scheduler (sweep) and jobs (cancel).
"""
