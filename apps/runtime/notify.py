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
REST_S = 1.0
"""How long nothing is sent on a channel after a notice failed: whoever waits for it
looks as often by itself, and each try may last as long as the session's timeouts."""
LONGEST = 7_000
"""Bytes of payload: beyond 7,999 NOTIFY is an error; an empty one means: all."""
FAILED = (
    psycopg.errors.ProgramLimitExceeded,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.QueryCanceled,
)
"""Errors of a notice by which nothing is wrong with its session: the server's queue is
full, as some session listens and does not read, or somebody's commit is stuck."""


def listen(conn: Connection, *channels: str) -> None:
    """Hear these channels on this session from now on."""
    for channel in channels:
        store.listen(conn, channel=channel)


def hear(conn: Connection) -> list[str]:
    """Return the channels of the notices that have come, without waiting."""
    return [notice.channel for notice in conn.notifies(timeout=0)]


class Voice:
    """Sends notices on one session, at most one a channel in ten milliseconds.

    What the server cannot take is kept and sent a second later.
    """

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._next: dict[str, float] = {}
        """From when on something may be sent on a channel again."""
        self._kept: dict[str, set[str]] = {}
        self._failing = False

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
            if now >= self._next.get(channel, now):
                words = self._kept[channel]
                payload = ",".join(sorted(words))
                if ALL in words or len(payload.encode()) > LONGEST:
                    payload = ALL
                if self._notify(channel, payload):
                    del self._kept[channel]
                    self._next[channel] = now + QUIET_S
                else:
                    self._next[channel] = time.monotonic() + REST_S

    def _notify(self, channel: str, payload: str) -> bool:
        """Send a notice; return False where the server cannot take it now."""
        try:
            store.notify(self._conn, channel=channel, payload=payload)
        except FAILED as error:
            if not self._failing:
                why = str(error).partition("\n")[0]
                log.warning("notices are not sent: %s", why)
            self._failing = True
            return False
        self._failing = False
        return True

    def flush_in(self) -> float | None:
        """Return the seconds until something kept may go, None if nothing is kept."""
        if not self._kept:
            return None
        now = time.monotonic()
        return max(0.0, min(self._next.get(c, now) for c in self._kept) - now)
