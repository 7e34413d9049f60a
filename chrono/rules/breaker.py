"""The circuit breaker of a target: closed, open, half open, closing.

After Nygard, "Release It!" (2007), with a ramp behind the probe: a target that answers
again is not met by everything that waited for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from uuid import UUID

from chrono.rules.instants import SECOND, Millis

RAMP_START = 5
"""How many runs a second are let in when a circuit begins to close."""
RAMP_STEP: Millis = 5 * SECOND
"""After this long the rate has doubled."""
_DOUBLINGS = 20


class BreakerState(IntEnum):
    """How a circuit stands. The numbers are stored."""

    CLOSED = 1
    """Every run is let through."""
    OPEN = 2
    """No run is let through."""
    HALF_OPEN = 3
    """Probes are under way, nothing else is let through."""
    CLOSING = 4
    """A probe succeeded: runs are let through at a rate that rises."""

    @property
    def label(self) -> str:
        """Return the public word for the state."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """When a circuit opens, for how long, and how many runs probe at once."""

    failure_threshold: int = 20
    open_duration_s: int = 30
    half_open_probes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """One circuit, as it is stored."""

    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    """In a row, up to now."""
    changed_at: Millis = 0
    probe_at: Millis | None = None
    """When the next probes may go; None where none ever go by themselves."""
    probes: tuple[UUID, ...] = ()
    """The runs that probe; no other may call the target while it is half open."""
    let_in: int = 0
    """How many runs were let in since it began to close."""
    policy: BreakerPolicy = BreakerPolicy()
    """That of the run by whose failure it opened."""

    @property
    def manual(self) -> bool:
        """Whether a person opened it: it stays so until a person closes it."""
        return self.state is BreakerState.OPEN and self.probe_at is None


type Call = tuple[UUID, bool]
"""A run that called the target, and whether it got an answer that was no failure."""


def report(
    breaker: Breaker, calls: Sequence[Call], *, policy: BreakerPolicy, now: Millis
) -> Breaker:
    """Return the circuit after these calls came to their end, in their order.

    In an open circuit they change nothing: they had begun before. In a half open one
    the probes alone count, and one that failed outweighs one that succeeded.
    """
    match breaker.state:
        case BreakerState.OPEN:
            return breaker
        case BreakerState.HALF_OPEN:
            ended = [good for run, good in calls if run in breaker.probes]
            if not ended:
                return breaker
            if all(ended):
                return _closing(breaker, now)
            return _opened(breaker, breaker.failures, breaker.policy, now)
        case _:
            failures = breaker.failures
            for _, good in calls:
                failures = 0 if good else failures + 1
            bound = policy.failure_threshold
            if breaker.state is BreakerState.CLOSING:
                bound = max(1, bound // 4)
            if failures >= bound:
                return _opened(breaker, failures, policy, now)
            return replace(breaker, failures=failures)


def open_by_hand(breaker: Breaker, now: Millis) -> Breaker:
    """Return the circuit opened by a person: no probe goes until one closes it."""
    opened = _opened(breaker, breaker.failures, breaker.policy, now)
    return replace(opened, probe_at=None)


def close_by_hand(breaker: Breaker, now: Millis) -> Breaker:
    """Return the circuit as it begins to close; a closed one stays as it is."""
    if breaker.state in (BreakerState.CLOSED, BreakerState.CLOSING):
        return replace(breaker, failures=0)
    return _closing(breaker, now)


def ramp(breaker: Breaker, now: Millis) -> int:
    """Return how many runs a closing circuit lets in now, beyond those it has.

    Five a second in the beginning, twice as many after every five seconds.
    """
    steps, rest = divmod(max(0, now - breaker.changed_at), RAMP_STEP)
    if steps > _DOUBLINGS:
        steps, rest = _DOUBLINGS, 0
    a_step = RAMP_START * RAMP_STEP // SECOND
    due = a_step * ((1 << steps) - 1) + a_step * (1 << steps) * rest // RAMP_STEP
    return max(0, RAMP_START + due - breaker.let_in)


def may_close(breaker: Breaker, now: Millis) -> bool:
    """Return whether a closing circuit for which nothing waits is closed by now."""
    return (
        breaker.state is BreakerState.CLOSING and now >= breaker.changed_at + RAMP_STEP
    )


def _opened(
    breaker: Breaker, failures: int, policy: BreakerPolicy, now: Millis
) -> Breaker:
    return replace(
        breaker,
        state=BreakerState.OPEN,
        failures=failures,
        changed_at=now,
        probe_at=now + policy.open_duration_s * SECOND,
        probes=(),
        let_in=0,
        policy=policy,
    )


def _closing(breaker: Breaker, now: Millis) -> Breaker:
    return replace(
        breaker,
        state=BreakerState.CLOSING,
        failures=0,
        changed_at=now,
        probe_at=None,
        probes=(),
        let_in=0,
    )
