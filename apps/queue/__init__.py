"""The waiting room for workers: runs that are ready, parked, blocked or withdrawn.

Tables: ``chrono_ready`` in a ring of eight slices, ``chrono_parked``,
``chrono_blocked``, ``chrono_withdrawn``.

Invariants: rows are never updated; a claim takes the lowest (priority, tag) of a queue
over all slices; a slice is truncated only when a second look under its lock finds it
empty; a withdrawn run is never claimed.

Called by runs (claim, cancel) and scheduler (fire, upkeep).
"""
