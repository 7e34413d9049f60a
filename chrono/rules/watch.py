"""When a job or a run is not as it should be, and what is told of it.

A breach is told once when it is noticed, and once more when it is over. Nothing is told
of a job that is paused or deleted: what was open there is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from uuid import UUID

from chrono.rules.instants import Millis

NO_RUN = UUID(int=0)
"""Stands for the run of a breach that is about the whole job."""


class WatchKind(IntEnum):
    """What can be wrong. The numbers are stored."""

    LATE = 1
    """A run has not begun, `late_after` after it was due."""
    LONG = 2
    """An attempt takes longer than `max_runtime`."""
    NO_SUCCESS = 3
    """The job had no success for `max_time_since_success`."""

    @property
    def label(self) -> str:
        """Return the public word for the kind."""
        return self.name.lower()

    @property
    def policy(self) -> str:
        """Return the name of the policy that sets its bound."""
        return _POLICIES[self]


_POLICIES = {
    WatchKind.LATE: "late_after",
    WatchKind.LONG: "max_runtime",
    WatchKind.NO_SUCCESS: "max_time_since_success",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """What may be wrong, and of what."""

    kind: WatchKind
    job_id: UUID
    run_id: UUID = NO_RUN


class Sight(Enum):
    """How a look found it."""

    HOLDS = auto()
    """It is so."""
    OVER = auto()
    """It is not so, or not any more."""
    QUIET = auto()
    """Nobody is to be told, whatever it is: the job is paused or deleted."""


class Change(Enum):
    """What becomes of a breach."""

    BEGINS = auto()
    """It is noted and told."""
    ENDS = auto()
    """It is forgotten, and told to be over."""
    LAPSES = auto()
    """It is forgotten, and nothing is told."""


def sight(
    begun: Millis | None,
    *,
    bound: Millis | None,
    now: Millis,
    stopped: bool = False,
) -> Sight:
    """Return how something stands that may last so long from an instant on.

    ``begun`` None stands for what does not last any more, ``bound`` None for no bound,
    ``stopped`` for a job that is paused or deleted.
    """
    if stopped:
        return Sight.QUIET
    if begun is None or bound is None or now - begun <= bound:
        return Sight.OVER
    return Sight.HOLDS


def changes(seen: Mapping[Breach, Sight], known: Set[Breach]) -> dict[Breach, Change]:
    """Return what is to be written, given what was seen and what is open already.

    What was not looked at stays as it is.
    """
    found: dict[Breach, Change] = {}
    for breach, how in seen.items():
        if breach not in known:
            if how is Sight.HOLDS:
                found[breach] = Change.BEGINS
        elif how is Sight.OVER:
            found[breach] = Change.ENDS
        elif how is Sight.QUIET:
            found[breach] = Change.LAPSES
    return found
