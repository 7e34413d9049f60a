"""Lease arithmetic: when a worker beats, is presumed dead, and must stop itself.

All instants are the database's clock, in milliseconds, except where a function says
that it takes the worker's own monotonic clock.
"""

from __future__ import annotations

from chrono.rules.instants import Millis

LEASE_TTL: Millis = 30_000
"""A worker that has not beaten for this long has lost its runs."""
BEAT_EVERY: Millis = 10_000
"""How often a worker beats; two beats may be lost before the lease is."""
SWEEP_EVERY: Millis = 1_000
"""How often the leader looks for dead workers."""
SUSPECT_AFTER: Millis = 28_000
"""A worker that has not beaten for this long is watched: when its lease ends it was
seen to be silent before."""
SECOND_LOOK_AFTER: Millis = 2_000
"""So long a worker must have been seen to be silent to be dead."""
CROWD_SHARE = 0.2
"""Where the silent hold more than this share of all leases, the fault may be the
database's, or its clock's."""
CROWD_LOOK_AFTER: Millis = 10_000
"""So long a crowd must have been seen to be silent to be dead."""
GONE_AFTER: Millis = 5_000
"""A worker none of whose sessions has been there for so long has no process."""
SESSIONS_BACK_AFTER: Millis = 30_000
"""So long after the database started, or sessions were cut off, nobody is dead for
having none."""
ALL_BEATEN_AFTER: Millis = 15_000
"""So long after the database came back, or its clock jumped, every living worker has
beaten again, one that waited between two tries included."""
TERMINATE_AFTER: Millis = 60_000
"""So long after a run was told to stop, whoever told it may end it all the same."""
SAFETY_MARGIN: Millis = 5_000
"""How long before its lease can be taken a worker stops acting on it."""


def expired(beat_at: Millis, now: Millis) -> bool:
    """Return whether the leases of a worker that last beat then are up for taking."""
    return now - beat_at >= LEASE_TTL


def dead_after(*, theirs: int, of_all: int) -> Millis:
    """Return for how long those who hold so many leases must have been seen silent."""
    crowd = theirs > of_all * CROWD_SHARE
    return CROWD_LOOK_AFTER if crowd else SECOND_LOOK_AFTER


def trusted_until(beat_sent_at: Millis) -> Millis:
    """Return the instant at which a worker must stop acting on its leases.

    `beat_sent_at` is when its last *confirmed* beat was sent, not answered, on the
    worker's monotonic clock: the database stamps the beat no earlier than that, so
    the lease outlives this instant by SAFETY_MARGIN or more.
    """
    return beat_sent_at + LEASE_TTL - SAFETY_MARGIN


def next_beat_in(beat_sent_at: Millis, now: Millis) -> Millis:
    """Return the milliseconds to wait before the next beat; 0 when it is overdue."""
    return max(0, beat_sent_at + BEAT_EVERY - now)
