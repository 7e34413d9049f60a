"""Wake-ups over LISTEN and NOTIFY: hints, never the truth, which is polled.

A notice travels on a session of its own, never inside a batch's transaction, and at
most once in ten milliseconds: the first at once, what follows with the next.
"""

import logging
import time
from collections.abc import Iterable

import psycopg

from apps.runtime import store
from apps.runtime.sessions import Connection

log = logging.getLogger("chrono.notify")

READY = "chrono_ready"
"""Runs became ready; the payload names their queues, separated by commas."""
JOBS = "chrono_jobs"
"""Jobs changed; the payload names their partitions."""
GATES = "chrono_gates"
"""Runs wait behind gates; for who lets in by them."""
LEADERSHIP = "chrono_leadership"
"""A scheduler gave its partitions up."""

ALL = ""
QUIET_S = 0.010
LONGEST = 7_000
"""Bytes of payload: beyond 7,999 NOTIFY is an error; an empty one means: all."""


def listen(conn: Connection, *channels: str) -> None:
    """Hear these channels on this session from now on."""
    for channel in channels:
        store.listen(conn, channel=channel)


def hear(conn: Connection) -> list[str]:
    """Return the channels of the notices that have come, without waiting."""
    return [notice.channel for notice in conn.notifies(timeout=0)]


class Voice:
    """Sends notices on one session, at most one a channel in ten milliseconds."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._said: dict[str, float] = {}
        self._kept: dict[str, set[str]] = {}
        self._full = False

    def say(self, channel: str, words: Iterable[str]) -> None:
        """Send a notice now, or with the next :meth:`flush` if one was just sent.

        No words mean: all.
        """
        self._kept.setdefault(channel, set()).update(list(words) or [ALL])
        self.flush()

    def flush(self) -> None:
        """Send what was kept and may go now."""
        now = time.monotonic()
        for channel in [*self._kept]:
            if now - self._said.get(channel, -1.0) >= QUIET_S:
                words = self._kept.pop(channel)
                payload = ",".join(sorted(words))
                if ALL in words or len(payload.encode()) > LONGEST:
                    payload = ALL
                self._notify(channel, payload)
                self._said[channel] = now

    def _notify(self, channel: str, payload: str) -> None:
        try:
            store.notify(self._conn, channel=channel, payload=payload)
        except psycopg.errors.ProgramLimitExceeded:
            # Some session listens and does not read: whoever waits looks by itself.
            if not self._full:
                log.warning("notices are not sent: the server's queue of them is full")
            self._full = True
        else:
            self._full = False

    def flush_in(self) -> float | None:
        """Return the seconds until something kept may go, None if nothing is kept."""
        if not self._kept:
            return None
        now = time.monotonic()
        return max(0.0, min(self._said.get(c, 0.0) + QUIET_S - now for c in self._kept))
