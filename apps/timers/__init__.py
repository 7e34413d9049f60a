"""The waiting room of time: what comes due, and who leads each partition.

Tables: ``chrono_partition`` (fence, term and epoch of each of the 64 partitions),
``chrono_dispatch_state`` (what upkeep publishes), ``chrono_timer`` in hourly buckets,
``chrono_timer_far`` beyond the horizon.

Invariants: a timer row is never updated, it is moved; a key (part, due_at, ref, kind,
version) is never used twice; ``chrono_timer`` has no default partition, so a row beyond
the horizon goes to ``chrono_timer_far`` and stays visible to load and look.

Called by jobs (plan), runs (retries) and scheduler (load, fire, upkeep).
"""
