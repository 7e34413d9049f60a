"""Whether a job's ledger says what its plans ask for, occurrence by occurrence.

Each plan decides its own stretch of time: from where it begins up to where the next one
does. In it every occurrence has exactly one decision, and nothing else has one. When a
schedule fires is asked of `chrono.rules.oracle`, never of the rules that plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from chrono.rules.instants import LATEST, Millis, format_instant
from chrono.rules.oracle import fires, is_predictable

type Schedule = Mapping[str, Any]
"""The fields of a schedule, as a revision has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What decided a job's occurrences under one planning version."""

    version: int
    begins: Millis | None
    """It decides strictly after this instant; None where that is not known."""
    schedule: Schedule
    stopped: bool = False
    """Whether the job was paused or deleted: nothing fires, and what would have is
    skipped or not told, all of it."""
    may_end_early: bool = False
    """Whether something else than its schedule may have ended it."""
    other_rules: bool = False
    """Whether its time zone had other rules when it decided: only the order of its
    decisions can be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One row of the ledger: an occurrence, or several that share a reason."""

    first: Millis
    last: Millis
    fired: bool
    count: int
    """How many occurrences it says it stands for."""
    exact: bool
    """Whether it stands for no more than it says."""
    ahead: bool
    """Whether a person decided it before its time: it belongs to the plan that began
    with it."""
    version: int
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Where a ledger and the plans of its job differ."""

    moment: Millis
    detail: str
    undecided: bool = False
    """Whether nothing was decided; it may still wait in a timer."""


def first_after(schedule: Schedule, moment: Millis) -> Millis | None:
    """Return the first fire strictly after an instant, None where there is none."""
    return next(fires(schedule, moment, LATEST - 1), None)


class Comparison:
    """The decisions of one job beside its plans; told one by one, then finished.

    The plans come by version; the last one is in force, and is looked at up to its last
    decision. Of a plan whose begin or end is not known, what lies between its first
    decision and its last is looked at. ``schedule_of`` tells the schedule of a
    revision. May raise oracle.Unreadable anywhere.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        *,
        since: Millis,
        schedule_of: Callable[[int], Schedule],
    ) -> None:
        self._plans = list(plans)
        self._schedule_of = schedule_of
        self._over = since
        """What lies up to here is decided, or not looked at."""
        self._expected: Iterator[Millis] = iter(())
        self._next: Millis | None = None
        self._place, self._begins = -1, since
        self._expecting = False
        in_force = [
            place
            for place, plan in enumerate(self._plans)
            if plan.begins is not None and plan.begins <= since
        ]
        if in_force:
            self._begin(in_force[-1], since)

    def hear(self, decision: Decision) -> Iterator[Fault]:
        """Yield what is wrong with the next decision, and what was left out before it.

        Decisions come by instant, all later than ``since``. Iterate to the end.
        """
        if decision.version > self._version:
            yield from self._enter(decision)
        plan = self._plans[self._place]
        if decision.version == plan.version and not (plan.stopped and decision.fired):
            self._expect(plan)
            yield from self._undecided(decision.first - 1)
        wrong = self._wrong(decision, plan)
        if wrong is not None:
            said = f"has {format_instant(decision.first)} {wrong}"
            yield Fault(moment=decision.first, detail=said)
        self._over = max(self._over, decision.last)
        while self._next is not None and self._next <= decision.last:
            self._next = next(self._expected, None)

    def finish(self) -> Iterator[Fault]:
        """Yield what the plans that are over left undecided."""
        yield from self._end_plans(self._plans[-1].version if self._plans else 0)

    @property
    def _version(self) -> int:
        return self._plans[self._place].version if self._place >= 0 else -1

    def _enter(self, decision: Decision) -> Iterator[Fault]:
        """End the plans before the one of a decision, and begin that."""
        # What a person decided ahead begins its plan, whatever the job's row says.
        border = decision.first - 1 if decision.ahead else LATEST
        yield from self._end_plans(decision.version, border)
        place = next(
            (n for n, p in enumerate(self._plans) if p.version >= decision.version),
            len(self._plans),
        )
        known = self._plans[place : place + 1]
        if not known or known[0].version != decision.version:
            unknown = Plan(
                version=decision.version,
                begins=None,
                schedule=self._schedule_of(decision.revision),
            )
            self._plans.insert(place, unknown)
        begins = self._plans[place].begins
        if begins is None or (decision.ahead and decision.first <= begins):
            begins = decision.first - 1
        self._begin(place, begins)

    def _wrong(self, decision: Decision, plan: Plan) -> str | None:
        if decision.version < plan.version:
            said = f"decided by plan {decision.version} in the time of plan"
            return f"{said} {plan.version}"
        if plan.stopped and decision.fired:
            return f"fired by plan {plan.version}, which is paused or deleted"
        if decision.first <= self._over:
            return "decided twice"
        if not _is_told(plan):
            return None
        end = self._end()
        if end is not None and decision.first > end:
            return f"decided by plan {plan.version} after its end"
        if decision.first != self._next:
            return f"decided, which is no occurrence of plan {plan.version}"
        if decision.last > decision.first:
            return _miscounted(decision, plan.schedule)
        return None

    def _begin(self, place: int, begins: Millis) -> None:
        plan = self._plans[place]
        self._place, self._begins = place, max(begins, self._over)
        self._expected, self._next = iter(()), None
        self._expecting = False
        if not plan.stopped:
            self._expect(plan)

    def _expect(self, plan: Plan) -> None:
        """Ask when the present plan fires, unless that is under way or not told."""
        if self._expecting or not _is_told(plan):
            return
        end = self._end()
        until = LATEST - 1 if end is None else end
        self._expecting = True
        self._expected = fires(plan.schedule, self._begins, until)
        self._next = next(self._expected, None)

    def _end(self) -> Millis | None:
        """Return the last instant that the present plan decides, if it is known."""
        plan, *later = self._plans[self._place : self._place + 2]
        if later and later[0].version == plan.version + 1:
            return later[0].begins
        return None

    def _end_plans(self, version: int, border: Millis = LATEST) -> Iterator[Fault]:
        """Go through all plans below a version, each up to its end."""
        while True:
            end = self._end() if self._place >= 0 else None
            if end is not None and not self._plans[self._place].may_end_early:
                yield from self._undecided(min(end, border))
            following = self._plans[self._place + 1 : self._place + 2]
            if not following or following[0].version >= version:
                return
            begins = following[0].begins
            self._begin(self._place + 1, LATEST if begins is None else begins)

    def _undecided(self, until: Millis) -> Iterator[Fault]:
        while self._next is not None and self._next <= until:
            yield Fault(
                moment=self._next,
                detail=f"has {format_instant(self._next)} undecided",
                undecided=True,
            )
            self._next = next(self._expected, None)


def _is_told(plan: Plan) -> bool:
    """Return whether a plan's schedule tells its occurrences."""
    return is_predictable(plan.schedule) and not plan.other_rules


def _miscounted(decision: Decision, schedule: Schedule) -> str | None:
    """Return what is wrong with the number and the end of a stretch."""
    first, last = decision.first, decision.last
    end = format_instant(last)
    if next(fires(schedule, last - 1, last), None) is None:
        return f"decided up to {end}, which is no occurrence"
    most = decision.count + (1 if decision.exact else 0)
    counted = sum(1 for _ in islice(fires(schedule, first - 1, last), most))
    if counted == decision.count:
        return None
    more = " or more" if counted == most else ""
    said = f"decided up to {end} as {decision.count} occurrences"
    return f"{said}, where there are {counted}{more}"
