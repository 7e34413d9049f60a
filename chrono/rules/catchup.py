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

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from chrono.rules.instants import MINUTE, Millis
from chrono.rules.keys import is_extra, scheduled_for_of
from chrono.rules.policy import Policy
from chrono.rules.schedule import Schedule, next_after, occurrences, period
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
    schedule: Schedule, policy: Policy, *, after: Millis, offset: Millis, now: Millis
) -> Borders:
    """Return how the policy divides what a schedule missed after an instant."""
    until = missed_until(now, offset)
    past = -1 if policy.max_delay is None else now - offset - policy.max_delay - 1
    past = min(past, until)
    if policy.catchup_policy == "skip":
        left_out = until
    elif policy.catchup_policy == "run_once":
        left_out = -1
    else:
        left_out = _before_newest(schedule, max(after, past), until)
    return Borders(
        past_deadline=past,
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
    edge = borders(schedule, policy, after=first - 1, offset=offset, now=now)
    given_up: list[Stretch] = []
    at: Millis | None = first
    for border, reason in (
        (edge.past_deadline, Reason.PAST_DEADLINE),
        (edge.left_out, Reason.MISSED_SKIP),
    ):
        if at is None or at > border:
            continue
        moments = _first(schedule, at, border)
        given_up.append(_stretch(moments, reason))
        at = next_after(schedule, moments[-1])
        if len(moments) == GIVEN_UP_AT_ONCE:
            return CatchUp(tuple(given_up), (), at)
    if at is None or at > edge.until:
        return CatchUp(tuple(given_up), (), at)
    if not edge.collapse:
        runs = (at, *occurrences(schedule, at, edge.until))
        return CatchUp(tuple(given_up), runs, next_after(schedule, runs[-1]))
    moments = _first(schedule, at, edge.until)
    following = next_after(schedule, moments[-1])
    if following is not None and following <= edge.until:
        given_up.append(_stretch(moments, Reason.COLLAPSED))
        return CatchUp(tuple(given_up), (), following)
    *others, newest = moments
    if others:
        given_up.append(_stretch(others, Reason.COLLAPSED))
    return CatchUp(tuple(given_up), (newest,), following)


def _first(schedule: Schedule, at: Millis, border: Millis) -> list[Millis]:
    """Return ``at`` and what follows it up to a border, as many as one row gives up."""
    return [at, *islice(occurrences(schedule, at, border), GIVEN_UP_AT_ONCE - 1)]


def _stretch(moments: Sequence[Millis], reason: Reason) -> Stretch:
    return Stretch(moments[0], moments[-1], len(moments), reason)


def _before_newest(schedule: Schedule, after: Millis, until: Millis) -> Millis:
    """Return a border after which the newest that run lie, -1 where all of them do."""
    if _count(schedule, after, until) <= MOST_RUNS:
        return -1
    # Where the distances are all the same, this is it already.
    border = max(after, until - MOST_RUNS * (period(schedule) or 0))
    high = until
    while (count := _count(schedule, border, until)) != MOST_RUNS:
        if count > MOST_RUNS:
            after = border
        else:
            high = border
        border = (after + high) // 2
    return border


def _count(schedule: Schedule, after: Millis, until: Millis) -> int:
    """Return how many fires lie in (after, until], at most one more than may run."""
    return sum(1 for _ in islice(occurrences(schedule, after, until), MOST_RUNS + 1))
