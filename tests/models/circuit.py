"""The circuit of one target as a model: what a leader and the workers may do by it.

It knows nothing of the product's rules; of time it knows in which bounds it lies.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from chrono.rules.instants import HOUR, SECOND, Millis

FAILURES = 2
"""So many in a row open the circuit."""
HOUR_S = HOUR // SECOND
"""So long it is open until it is probed: longer than a life takes."""
OF_RAMP = 1
"""How many are let in at once when it begins to close, and a second from then on."""
DOUBLES_AFTER: Millis = 5 * SECOND


@dataclass(slots=True)
class Circuit:
    """How it stands."""

    state: str = "closed"
    failures: int = 0
    by_hand: bool = False
    due: bool = False
    """Whether it is time for a probe."""
    probe: uuid.UUID | None = None
    let_in: int = 0
    closes: tuple[Millis, Millis] = (0, 0)
    """Between when and when it began to close."""

    def lets_through(self, run: uuid.UUID) -> bool:
        """Return whether a run that was claimed may call the target."""
        if self.state == "half_open":
            return run == self.probe
        return self.state != "open"

    def hear(self, run: uuid.UUID, good: bool, before: Millis, after: Millis) -> None:
        """Take what a worker tells of a call, between two instants."""
        if self.state == "half_open" and run == self.probe:
            if good:
                self.begin_to_close(before, after)
            else:
                self.open()
        elif self.state in ("closed", "closing"):
            self.failures = 0 if good else self.failures + 1
            if self.failures >= (FAILURES if self.state == "closed" else 1):
                self.open()

    def open(self, *, by_hand: bool = False) -> None:
        """Let nobody through."""
        self.state, self.by_hand, self.due, self.probe = "open", by_hand, False, None

    def may_probe(self, *, busy: Sequence[uuid.UUID]) -> bool:
        """Return whether a run is let in as a probe, of those that wait."""
        if self.state == "half_open":
            return self.due and self.probe not in busy
        return self.state == "open" and self.due and not self.by_hand

    def begin_to_probe(self, run: uuid.UUID) -> None:
        """Let this run through alone."""
        self.state, self.due, self.probe = "half_open", False, run

    def begin_to_close(self, before: Millis, after: Millis) -> None:
        """Let runs through, more and more of them."""
        self.state, self.failures, self.let_in, self.probe = "closing", 0, 0, None
        self.closes = (before, after)

    def ramp(
        self, count: int, *, left: int, began: Millis, ended: Millis, closed: bool
    ) -> None:
        """Take how many were let in, and how many were not, between two instants.

        And whether it is closed by that.
        """
        least, most = began - self.closes[1], ended - self.closes[0]
        self.let_in += count
        assert not count or self.let_in <= _of_ramp(most), "more than the ramp allows"
        full = self.let_in >= _of_ramp(least)
        assert not left or full, "fewer than the ramp allows"
        if closed:
            assert not left, "it is closed though runs wait"
            assert most >= DOUBLES_AFTER, "it is closed too early"
            self.state, self.let_in = "closed", 0
        else:
            assert left or full or least < DOUBLES_AFTER, "it never closes"

    def pass_an_hour(self) -> None:
        """Have an hour go by."""
        self.due = self.state in ("open", "half_open")
        self.closes = (
            self.closes[0] - 61 * HOUR // 60,
            self.closes[1] - 61 * HOUR // 60,
        )


def _of_ramp(passed: Millis) -> int:
    """Return how many may be let in by so long after it began to close."""
    total, rate = OF_RAMP * SECOND, OF_RAMP
    while passed > 0 and rate < 1 << 40:
        total += rate * min(passed, DOUBLES_AFTER)
        rate *= 2
        passed -= DOUBLES_AFTER
    return total // SECOND
