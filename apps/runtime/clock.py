"""Database time, read from the node's monotonic clock and an offset.

The database's clock is the authority. A node measures how far its own monotonic
clock lies from it, trusts the probe with the shortest round trip, and never steps
back, unless one of the two clocks jumped. The node's wall clock decides nothing.
"""

import time
from typing import Protocol

from apps.runtime import store
from apps.runtime.sessions import Connection
from chrono.rules.instants import Millis

PROBES = 5
PROBE_EVERY = 5_000
PROBE_SOON = 1_000
"""How often a clock is probed that is not fit, or was found to have drifted."""
WORST_BOUND = 250.0
"""A clock that is known no better than this is not fit to go by."""
JUMP = 500.0
"""An offset that moves by more than this between two probes has jumped."""
STEADY_PROBES = 3
"""After a jump so many probes in a row must agree until the clock is fit again."""


class Clock(Protocol):
    """Whatever tells the time of the database."""

    def now(self) -> Millis:
        """Return the database's time in epoch milliseconds, rounded down."""
        ...

    def override(self) -> Millis | None:
        """Return what stands for the database's clock in statements; None: its own."""
        ...


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now: Millis) -> None:
        self.moment = now

    def now(self) -> Millis:
        """Return the moment last set."""
        return self.moment

    def override(self) -> Millis | None:
        """Return the moment last set: statements go by it too."""
        return self.moment


def skew(conn: Connection) -> float:
    """Return how many milliseconds this node's wall clock is before the database's.

    For people to look at; nothing is decided by a node's wall clock.
    """
    before = time.time() * 1000
    database = store.read_clock(conn)
    after = time.time() * 1000
    return (before + after) / 2 - database


def strayed(clock: Clock, told: Millis, *, since: Millis) -> bool:
    """Tell whether the database's clock jumped and ``clock`` does not know it yet.

    ``told`` is what the database's showed between ``since`` and now, by ``clock``.
    Never where statements go by a test's time instead.
    """
    if clock.override() is not None:
        return False
    return not since - JUMP <= told <= clock.now() + JUMP


class DatabaseClock:
    """The database's clock as seen from here; have it probed every few seconds."""

    def __init__(self, conn: Connection, *, shift: Millis = 0) -> None:
        self._offset = 0.0
        self._last = 0
        self.bound_ms = 0.0
        self._probed = float("-inf")
        self._every = PROBE_EVERY
        self._steady = STEADY_PROBES
        self._shift = shift
        self.probe(conn)

    @property
    def fit(self) -> bool:
        """Whether a leader or a worker may go by it.

        Not while its bound is over :data:`WORST_BOUND`, nor after it or the database's
        jumped, until :data:`STEADY_PROBES` probes have agreed.
        """
        return self.bound_ms <= WORST_BOUND and self._steady >= STEADY_PROBES

    def now(self) -> Millis:
        """Return database time in epoch milliseconds; it goes back by a jump alone."""
        moment = int(time.monotonic() * 1000 + self._offset) + self._shift
        self._last = max(self._last, moment)
        return self._last

    def override(self) -> Millis | None:
        """Return the moved time of a test's process; None in production."""
        return self.now() if self._shift else None

    def probe_in(self) -> Millis:
        """Return in how many milliseconds the next probe is due, 0 where it is."""
        passed = time.monotonic() * 1000 - self._probed
        # A monotonic clock that goes back is none to wait by.
        return max(0, int(self._every - passed)) if passed >= 0 else 0

    def probe_if_old(self, conn: Connection) -> None:
        """Probe where it is due."""
        if not self.probe_in():
            self.probe(conn, probes=1)

    def probe(self, conn: Connection, *, probes: int = PROBES) -> None:
        """Measure the offset; keep the old one if this look was the less certain."""
        best_offset, best_bound = self._measure(conn)
        for _ in range(probes - 1):
            offset, bound = self._measure(conn)
            if bound < best_bound:
                best_offset, best_bound = offset, bound
        self._take(best_offset, best_bound)

    def hear(self, told: float, *, sent: Millis, heard: Millis) -> None:
        """Take the database's time that came with an answer for a probe.

        It was asked for and heard at these instants of the monotonic clock.
        """
        # Rounded down, each lies within the millisecond behind it.
        self._take(told - (sent + heard + 1) / 2, (heard - sent) / 2 + 1)

    def _take(self, offset: float, bound: float) -> None:
        drifted = False
        if not self._offset:
            self._offset, self.bound_ms = offset, bound
        else:
            # Beyond what the uncertainty of the two looks explains.
            moved = abs(offset - self._offset) - self.bound_ms - bound
            drifted = moved > 0
            self._steady = 0 if moved > JUMP else self._steady + 1
            if not self._steady:
                # What was shown since may lie far ahead of the truth.
                self._last = 0
            if drifted or bound <= self.bound_ms:
                self._offset, self.bound_ms = offset, bound
            else:
                # The kept offset ages: two clocks drift by up to 100 ppm.
                self.bound_ms += (time.monotonic() * 1000 - self._probed) / 10_000
        self._every = PROBE_EVERY if self.fit and not drifted else PROBE_SOON
        self._probed = time.monotonic() * 1000

    @staticmethod
    def _measure(conn: Connection) -> tuple[float, float]:
        before = time.monotonic() * 1000
        database = store.read_clock(conn)
        after = time.monotonic() * 1000
        return database - (before + after) / 2, (after - before) / 2
