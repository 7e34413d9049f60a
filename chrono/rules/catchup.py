"""What becomes of an occurrence whose time has come, or came while nobody looked.

Up to a minute late is late: it fires, oldest first. Later than that is missed: the
catch-up policy decides. There is one policy so far, run_once: the missed occurrences
of a job collapse into its newest missed one, which fires.
"""

from __future__ import annotations

from dataclasses import dataclass

from chrono.rules.instants import MINUTE, Millis
from chrono.rules.schedule import Schedule, latest_until, next_after
from chrono.rules.states import Reason

LATE: Millis = MINUTE
"""How far past its due instant an occurrence is late rather than missed."""
COLLAPSED_AT_ONCE = 1_000
"""How many occurrences one ledger row stands for at most."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with an occurrence, and which one to plan next."""

    skip: Reason | None
    """Why it does not fire; None where it does."""
    span: int
    """How many occurrences this decides, itself included."""
    last: Millis
    """The last of them: its own instant unless it stands for several."""
    following: Millis | None
    """The occurrence to plan next, None where the schedule has ended."""


def decide(
    schedule: Schedule, scheduled_for: Millis, *, offset: Millis, now: Millis
) -> Decision:
    """Return the decision on the first undecided occurrence of a schedule.

    ``offset`` is the job's jitter: an occurrence is due that long after its instant.
    """
    missed_until = now - LATE - offset - 1
    if scheduled_for <= missed_until:
        newest, count = latest_until(
            schedule, scheduled_for, missed_until, COLLAPSED_AT_ONCE
        )
        if newest is not None:
            return _collapse(schedule, scheduled_for, newest, count)
    return Decision(
        skip=None,
        span=1,
        last=scheduled_for,
        following=next_after(schedule, scheduled_for),
    )


def _collapse(
    schedule: Schedule, first: Millis, newest: Millis, count: int
) -> Decision:
    """Collapse all before ``newest``, of which ``count`` are seen, into one row."""
    if count >= COLLAPSED_AT_ONCE:
        # So many are missed that one row cannot tell: it stands for what it can, and
        # the next decision goes on from there.
        last, span = _walk(schedule, first, COLLAPSED_AT_ONCE)
        return Decision(
            skip=Reason.COLLAPSED,
            span=span,
            last=last,
            following=next_after(schedule, last),
        )
    last, _ = _walk(schedule, first, count)
    return Decision(skip=Reason.COLLAPSED, span=count, last=last, following=newest)


def _walk(schedule: Schedule, first: Millis, steps: int) -> tuple[Millis, int]:
    """Return the ``steps``-th occurrence from ``first``, and how many there were."""
    moment = first
    for made in range(1, steps):
        following = next_after(schedule, moment)
        if following is None:
            return moment, made
        moment = following
    return moment, steps
