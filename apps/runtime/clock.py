"""Database time, read from the node's monotonic clock and an offset.

The database's clock is the authority. A node measures how far its own monotonic
clock lies from it, trusts the probe with the shortest round trip, and never steps
back. The node's wall clock decides nothing.
"""

import time
from typing import Protocol

from apps.runtime import store
from apps.runtime.sessions import Connection
from chrono.rules.instants import Millis

PROBES = 5
PROBE_EVERY = 5_000


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


class DatabaseClock:
    """The database's clock as seen from here; probe it every :data:`PROBE_EVERY`."""

    def __init__(self, conn: Connection, *, shift: Millis = 0) -> None:
        self._offset = 0.0
        self._last = 0
        self.bound_ms = 0.0
        self._probed = float("-inf")
        self._shift = shift
        self.probe(conn)

    def now(self) -> Millis:
        """Return database time in epoch milliseconds; never less than before."""
        moment = int(time.monotonic() * 1000 + self._offset) + self._shift
        self._last = max(self._last, moment)
        return self._last

    def override(self) -> Millis | None:
        """Return the moved time of a test's process; None in production."""
        return self.now() if self._shift else None

    def probe_if_old(self, conn: Connection) -> None:
        """Probe when the last probe is older than :data:`PROBE_EVERY`."""
        if time.monotonic() * 1000 - self._probed >= PROBE_EVERY:
            self.probe(conn, probes=1)

    def probe(self, conn: Connection, *, probes: int = PROBES) -> None:
        """Measure the offset; keep the old one if this look was the less certain."""
        best_offset, best_bound = self._measure(conn)
        for _ in range(probes - 1):
            offset, bound = self._measure(conn)
            if bound < best_bound:
                best_offset, best_bound = offset, bound
        self._probed = time.monotonic() * 1000
        drifted = abs(best_offset - self._offset) > self.bound_ms + best_bound
        if best_bound <= self.bound_ms or drifted or not self._offset:
            self._offset, self.bound_ms = best_offset, best_bound
        else:
            # The kept offset ages: two clocks drift by up to 100 ppm.
            self.bound_ms += PROBE_EVERY / 10_000

    @staticmethod
    def _measure(conn: Connection) -> tuple[float, float]:
        before = time.monotonic() * 1000
        database = store.read_clock(conn)
        after = time.monotonic() * 1000
        return database - (before + after) / 2, (after - before) / 2
