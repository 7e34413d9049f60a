"""The stored numbers of kinds, outcomes, states, reasons and priorities.

The numbers are data: they are in every row ever written. A new member gets a new
number; none is renumbered or given again.
"""

from __future__ import annotations

from enum import IntEnum

from chrono.rules.errors import BadValue, IllegalMove


class TimerKind(IntEnum):
    """What a timer does when it comes due."""

    SCHEDULE = 1
    """A job's next occurrence."""
    LATE = 2
    """An occurrence that came due while nobody could fire it."""
    MANUAL = 3
    """A run that a person or a program asked for."""
    RETRY = 4
    """The next attempt of a run whose last attempt failed."""
    BACKFILL = 5
    """A run of a past occurrence that a person asked for; it has no timer."""


class Outcome(IntEnum):
    """What became of an occurrence."""

    FIRED = 1
    """A run was made for it."""
    SKIPPED = 2
    """No run was made; the reason says why."""


class RunState(IntEnum):
    """Where a run stands. 1 to 9 are final and stored; 11 and up are where it waits."""

    SUCCESS = 1
    """The handler finished, or the target answered 2xx."""
    FAILED = 2
    """A person resolved the run as failed."""
    DEAD = 3
    """It failed for good and lies in the dead-letter queue."""
    CANCELLED = 4
    """It was called off before it finished."""
    SKIPPED = 5
    """It was decided not to run."""
    UNKNOWN = 6
    """An at-most-once run whose worker died; a person decides."""

    SCHEDULED = 11
    """Its time has not come."""
    READY = 12
    """Waiting for a worker."""
    RUNNING = 13
    """A worker holds a lease on it."""
    RETRYING = 14
    """Its last attempt failed; waiting for the next."""
    PARKED = 15
    """Set aside while its target's breaker is open, or a gate is shut."""
    WAITING = 16
    """A workflow run that sleeps or waits for an event."""

    @property
    def label(self) -> str:
        """Return the public word for the state."""
        return self.name.lower()


class Reason(IntEnum):
    """Why a run or an occurrence was skipped, cancelled, parked or given up."""

    PAUSED = 1
    """The job was paused."""
    OVERLAP = 2
    """The previous run had not finished."""
    BUFFER_FULL = 3
    """Too many runs were waiting for the previous one already."""
    MISSED_SKIP = 4
    """Missed, and the catch-up policy leaves it out."""
    COLLAPSED = 5
    """Missed, and covered by one run for several occurrences."""
    PAST_DEADLINE = 6
    """Later than its `max_delay`."""
    CALENDAR = 7
    """Its calendar excludes the day or hour."""
    BLACKOUT = 8
    """It fell into a blackout window."""
    QUOTA = 9
    """The tenant's quota was used up."""
    RATE_DROP = 10
    """Above its rate limit, which drops."""
    CIRCUIT_OPEN = 11
    """The breaker of its target is open."""
    ENDED = 12
    """The job had reached its end or its number of runs."""
    DUPLICATE = 13
    """The same occurrence has a run already."""
    STALE_FENCE = 14
    """Written under a leadership that had ended."""
    TENANT_SUSPENDED = 15
    """The tenant was suspended."""
    ATTEMPTS_EXHAUSTED = 16
    """Every attempt failed."""
    NON_RETRYABLE = 17
    """It failed in a way that another attempt cannot cure."""
    OPERATOR = 18
    """A person did it."""
    REPLACED = 19
    """A newer run took its place."""
    TIMED_OUT = 20
    """It ran longer than it may."""
    WORKER_LOST = 21
    """Its worker stopped beating."""
    PROCESS_CRASH = 22
    """The process that ran it died."""
    NO_HANDLER = 23
    """No worker knows its handler."""
    PARENT_FAILED = 24
    """A run it depends on failed."""
    CONDITION_FALSE = 25
    """The condition of its node did not hold."""
    DELETED = 26
    """The job was deleted."""
    QUEUE_PAUSED = 27
    """Its queue was paused."""
    BUDGET_SPENT = 28
    """The retry budget of its target was used up."""
    RESOLVED = 29
    """A person settled what an unknown or dead run was."""
    ATTEMPT_FAILED = 30
    """One attempt failed and another follows; the attempt's error says how."""
    CATCH_UP = 31
    """It waits in the lane of missed and backfilled runs, which has a rate of its own.
    """

    RATE_LIMIT = 32
    """As many runs as its rate allows have begun lately."""
    CONCURRENCY_LIMIT = 33
    """As many runs of its key as may are ready or in execution."""

    @property
    def label(self) -> str:
        """Return the public word for the reason."""
        return self.name.lower()


class Priority(IntEnum):
    """Which runs go first. The smaller number does; in public only names count."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3
    BULK = 4

    @property
    def label(self) -> str:
        """Return the public word for the priority."""
        return self.name.lower()


_S = RunState

FINAL = frozenset(
    {_S.SUCCESS, _S.FAILED, _S.DEAD, _S.CANCELLED, _S.SKIPPED, _S.UNKNOWN}
)
"""States that nothing leaves by itself."""

_ENDED_WAITING = frozenset({_S.CANCELLED, _S.SKIPPED})

LEGAL_MOVES: dict[RunState, frozenset[RunState]] = {
    _S.SCHEDULED: _ENDED_WAITING | {_S.READY, _S.PARKED},
    _S.READY: _ENDED_WAITING | {_S.RUNNING, _S.PARKED},
    _S.RUNNING: frozenset(
        {
            _S.SUCCESS,
            _S.DEAD,
            _S.CANCELLED,
            _S.UNKNOWN,
            _S.READY,
            _S.RETRYING,
            _S.PARKED,
            _S.WAITING,
        }
    ),
    _S.RETRYING: frozenset({_S.READY, _S.PARKED, _S.CANCELLED, _S.DEAD}),
    _S.PARKED: _ENDED_WAITING | {_S.READY, _S.SCHEDULED, _S.DEAD},
    _S.WAITING: frozenset({_S.READY, _S.CANCELLED, _S.DEAD}),
    _S.SUCCESS: frozenset(),
    # A person resolves what is dead or unknown; a redrive is a new run with a new id.
    _S.DEAD: frozenset({_S.FAILED, _S.SUCCESS}),
    _S.UNKNOWN: frozenset({_S.FAILED, _S.SUCCESS}),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
    _S.SKIPPED: frozenset(),
}
"""From each state, the states a run may go to next."""

_STATUS = {
    _S.SUCCESS: "success",
    _S.FAILED: "failed",
    _S.DEAD: "failed",
    _S.UNKNOWN: "failed",
    _S.CANCELLED: "cancelled",
    _S.SKIPPED: "skipped",
    _S.RUNNING: "running",
}


def is_final(state: RunState) -> bool:
    """Return whether a run in this state is over."""
    return state in FINAL


def status_of(state: RunState) -> str:
    """Return the public status of a state: pending, running, success, failed, …"""
    return _STATUS.get(state, "pending")


def may_move(old: RunState, new: RunState) -> bool:
    """Return whether a run may go from one state to the other."""
    return new in LEGAL_MOVES[old]


def check_move(old: RunState, new: RunState) -> None:
    """Raise IllegalMove unless a run may go from one state to the other."""
    if not may_move(old, new):
        raise IllegalMove(f"A run cannot go from {old.label} to {new.label}.")


def priority_from_name(name: object) -> Priority:
    """Return the priority of this name; raise BadValue for anything else.

    Integers are refused on purpose: half of all schedulers count the other way.
    """
    names = {priority.label: priority for priority in Priority}
    if isinstance(name, str) and name in names:
        return names[name]
    raise BadValue(
        f"A priority is one of the names {', '.join(names)}; numbers are not accepted.",
        field="priority",
    )
