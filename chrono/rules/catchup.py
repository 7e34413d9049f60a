"""What becomes of an occurrence whose time has come, or came while nobody looked.

Up to a minute late is late: it fires, oldest first. Later than that is missed: the
job's catch-up policy decides, over all that it missed at once.

- `skip`: none of them runs.
- `run_once`: the newest runs and stands for the others.
- `run_all`: they all run, oldest first; of very many the newest 1,000.
- `deadline`: those run that are within `max_delay`, and at most the newest 1,000.

`max_delay` bounds the other policies, too, and what is late without being missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from chrono.rules.instants import MINUTE, Millis
from chrono.rules.keys import is_extra, scheduled_for_of
from chrono.rules.policy import Policy
from chrono.rules.schedule import (
    Schedule,
    latest_until,
    next_after,
    occurrences,
    period,
)
from chrono.rules.states import Reason

LATE: Millis = MINUTE
"""How far past its due instant an occurrence is late rather than missed."""
MOST_RUNS = 1_000
"""How many missed occurrences of a job run at most after one outage."""
GIVEN_UP_AT_ONCE = 1_000
"""How many occurrences one ledger row of a leader stands for at most."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Occurrences in a row that do not run, all for one reason."""

    first: Millis
    last: Millis
    count: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Borders:
    """How a policy divides what was missed up to an instant, oldest first.

    Up to each border, and itself included, occurrences are given up for its reason;
    what is later than the last of them runs, or is collapsed into the newest.
    """

    past_deadline: Millis
    left_out: Millis
    until: Millis
    collapse: bool


@dataclass(frozen=True, slots=True)
class CatchUp:
    """The decision on missed occurrences, and which one to plan next."""

    given_up: tuple[Stretch, ...]
    runs: tuple[Millis, ...]
    following: Millis | None
    """The occurrence to plan next, None where the schedule has ended."""


def missed_until(now: Millis, offset: Millis) -> Millis:
    """Return up to which nominal instant a job's occurrences are missed, not late."""
    return now - LATE - offset - 1


def may_stand_for_others(run: UUID, *, begun: Millis | None) -> bool:
    """Return whether missed occurrences may be collapsed into a run.

    Only into one of the schedule's own that begins, or began, too late for its instant;
    None stands for one that has not begun.
    """
    if is_extra(run):
        return False
    return begun is None or begun - scheduled_for_of(run) > LATE


def is_past_deadline(
    policy: Policy, scheduled_for: Millis, *, offset: Millis, now: Millis
) -> bool:
    """Return whether an occurrence is later than its job bears."""
    return policy.max_delay is not None and (
        now - scheduled_for - offset > policy.max_delay
    )


def borders(
    schedule: Schedule, policy: Policy, *, offset: Millis, now: Millis
) -> Borders:
    """Return how the policy divides what a schedule missed."""
    until = missed_until(now, offset)
    past = -1 if policy.max_delay is None else now - offset - policy.max_delay - 1
    if policy.catchup_policy == "skip":
        left_out = until
    elif policy.catchup_policy == "run_once":
        left_out = -1
    else:
        # No more than so many fires lie in so many of the shortest distances.
        left_out = until - MOST_RUNS * (period(schedule) or until)
    return Borders(
        past_deadline=min(past, until),
        left_out=left_out,
        until=until,
        collapse=policy.catchup_policy == "run_once",
    )


def catch_up(
    schedule: Schedule, first: Millis, *, policy: Policy, offset: Millis, now: Millis
) -> CatchUp:
    """Return what becomes of a schedule's missed occurrences from ``first`` on.

    ``first`` is missed itself. One call decides some thousand at most: what it leaves
    open it gives as ``following``, for the next. ``offset`` is the job's jitter.
    """
    edge = borders(schedule, policy, offset=offset, now=now)
    given_up: list[Stretch] = []
    at: Millis | None = first
    for border, reason in (
        (edge.past_deadline, Reason.PAST_DEADLINE),
        (edge.left_out, Reason.MISSED_SKIP),
    ):
        if at is None or at > border:
            continue
        stretch = _stretch(schedule, at, border, reason)
        given_up.append(stretch)
        at = next_after(schedule, stretch.last)
        if stretch.count == GIVEN_UP_AT_ONCE:
            return CatchUp(tuple(given_up), (), at)
    if at is None or at > edge.until:
        return CatchUp(tuple(given_up), (), at)
    if not edge.collapse:
        runs = (at, *occurrences(schedule, at, edge.until))
        return CatchUp(tuple(given_up), runs, next_after(schedule, runs[-1]))
    newest, others = latest_until(schedule, at, edge.until, GIVEN_UP_AT_ONCE)
    if newest is None:
        return CatchUp(tuple(given_up), (at,), next_after(schedule, at))
    if others == GIVEN_UP_AT_ONCE:
        given_up.append(_stretch(schedule, at, edge.until, Reason.COLLAPSED))
        return CatchUp(tuple(given_up), (), next_after(schedule, given_up[-1].last))
    given_up.append(_stretch(schedule, at, newest - 1, Reason.COLLAPSED))
    return CatchUp(tuple(given_up), (newest,), next_after(schedule, newest))


def _stretch(
    schedule: Schedule, first: Millis, border: Millis, reason: Reason
) -> Stretch:
    """Return the stretch from ``first``, no further than ``border`` and than fits."""
    later = islice(occurrences(schedule, first, border), GIVEN_UP_AT_ONCE - 1)
    moments = [first, *later]
    return Stretch(first, moments[-1], len(moments), reason)
