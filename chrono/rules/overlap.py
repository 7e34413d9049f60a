"""Whether an occurrence may run while earlier runs of its job are live."""

from __future__ import annotations

from enum import Enum, auto

from chrono.rules.policy import OverlapPolicy
from chrono.rules.states import Reason

MOST_BUFFERED = 100
"""How many runs of one job wait for an earlier one at most."""


class Place(Enum):
    """Where a run goes that is made."""

    READY = auto()
    """To the workers."""
    BUFFER = auto()
    """Behind the runs that are live; it is let in when there is a free place."""


class Check(Enum):
    """How much has to be known before a run is made."""

    NOTHING = auto()
    """There is no bound."""
    LAST = auto()
    """Whether the schedule's last run is settled: the bound is one, and skips."""
    SLOTS = auto()
    """How many runs are live; each of them has a slot."""


def check(policy: OverlapPolicy, most: int | None) -> Check:
    """Return what a job's overlap policy has to know, given its bound."""
    if policy == "allow_all":
        return Check.NOTHING if most is None else Check.SLOTS
    return Check.LAST if policy == "skip" and most in (None, 1) else Check.SLOTS


def decide(
    policy: OverlapPolicy, *, bound: int, live: int, buffered: int
) -> Place | Reason:
    """Return where a run goes, or why there is none.

    ``live`` runs are ready, running or waiting for a retry; ``buffered`` ones wait for
    a place. A run never passes one that waits.
    """
    if live < bound and not buffered:
        return Place.READY
    if policy in ("cancel_other", "terminate_other"):
        return Place.BUFFER
    if policy in ("buffer_one", "buffer_all"):
        most = 1 if policy == "buffer_one" else MOST_BUFFERED
        return Place.BUFFER if buffered < most else Reason.BUFFER_FULL
    return Reason.OVERLAP
