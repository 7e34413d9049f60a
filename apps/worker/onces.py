"""What the tasks of a worker do once, kept in the database beside their runs.

The answer to who comes second has three forms: done, so here is its result; somebody
alive is at it, so come again; whoever was at it is dead, so it is yours.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from apps.runs import once_store as store
from apps.runs.once_store import Holder, OnceKey
from apps.runs.store import Lease
from apps.runtime.sessions import Connection, connect_hot
from apps.worker.storable import storable_result
from chrono.rules.durations import parse_duration
from chrono.rules.errors import ChronoError
from chrono.rules.instants import DAY, MINUTE, Millis
from chrono.tasks import Done, OnceBusy, Per, RunCancelled

log = logging.getLogger("chrono.worker")

LOOKS = 20
LEAST_TTL: Millis = MINUTE
LONGEST_TTL: Millis = 90 * DAY
TRIES = 12
"""How often an answer is sent whose database is away."""
LONGEST_PAUSE_S = 4.0


class Sessions:
    """Sessions for what is done once, one for each thread that is at it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self.over = threading.Event()
        """Set once the life that they belong to is over."""

    @contextmanager
    def lend(self) -> Iterator[Connection]:
        """Lend a session; raises ``psycopg.Error`` and ChronoError as connecting."""
        with self._lock:
            conn = self._idle.pop() if self._idle else None
        if conn is None or conn.closed:
            conn = connect_hot(self._url, name="chrono worker once")
        try:
            yield conn
        except psycopg.OperationalError:
            # Whatever state it is in, a new session is known to be sound.
            conn.close()
            raise
        finally:
            with self._lock:
                keep = not conn.closed and not self.over.is_set()
                if keep:
                    self._idle.append(conn)
            if not keep:
                conn.close()

    def close(self) -> None:
        """Close all sessions, those that are lent as they come back."""
        with self._lock:
            self.over.set()
            idle, self._idle = self._idle, []
        for conn in idle:
            conn.close()


class Once:
    """What one execution does once; its methods may be called from any thread."""

    def __init__(self, lease: Lease, sessions: Sessions) -> None:
        self._lease = lease
        self._sessions = sessions
        self._by = Holder(run=lease.run_id, token=lease.token)
        self._conn: Connection | None = None

    def join(self, conn: Connection) -> None:
        """Do all in the transaction of ``conn``, which is this execution's."""
        self._conn = conn

    def take(self, name: str, *, per: Per, ttl: str) -> Done | None:
        """Take a key, or return what was done under it before.

        Raises :class:`OnceBusy` while somebody alive is at it, :class:`RunCancelled`
        where this execution has lost its lease, ValueError for a wrong ``ttl``.
        """
        key, length = self._key(name, per), ttl_of(ttl)
        for _ in range(LOOKS):
            with self._session() as conn:
                if store.insert_once(conn, key, self._by, ttl=length):
                    return None
                found = store.find_once(conn, key, self._by)
                if found.done and not found.expired:
                    return Done(result=found.result)
                if not found.leased:
                    raise RunCancelled
                if found.holder is None:
                    continue
                if not found.done and found.alive:
                    break
                if store.take_over_once(
                    conn, key, self._by, holder=found.holder, ttl=length
                ):
                    return None
        raise OnceBusy(f"{name}: another execution is at it, and it lives.")

    def finish(self, name: str, result: Any, *, per: Per, ttl: str) -> Any:
        """Keep what came of it; return that as it is kept.

        Waits for a database that is away: the effect is there, and must not be had
        again. Raises :class:`RunCancelled` where somebody took the key over.
        """
        kept, key = storable_result(result), self._key(name, per)
        seconds = 0.1
        for left in reversed(range(TRIES)):
            try:
                with self._session() as conn:
                    if store.finish_once(
                        conn, key, self._by, result=kept, ttl=ttl_of(ttl)
                    ):
                        return kept
                raise RunCancelled
            except psycopg.OperationalError as error:
                if self._conn is not None or not left:
                    raise
                log.warning("what was done once is not kept yet: %s", error)
            self._sessions.over.wait(seconds)
            seconds = min(LONGEST_PAUSE_S, seconds * 2)
        raise RunCancelled

    def release(self, name: str, *, per: Per) -> None:
        """Give a key back under which nothing was done, if the database is there."""
        try:
            with self._session() as conn:
                store.release_once(conn, self._key(name, per), self._by)
        except (psycopg.Error, ChronoError) as error:
            # The next attempt takes it over, since this one's lease is gone by then.
            log.warning("a key is not given back: %s", str(error).partition("\n")[0])

    def _key(self, name: str, per: Per) -> OnceKey:
        owner = self._lease.run_id if per == "run" else self._lease.job_id
        return OnceKey(owner=owner, part=self._lease.part, key=name)

    @contextmanager
    def _session(self) -> Iterator[Connection]:
        if self._conn is not None:
            yield self._conn
            return
        with self._sessions.lend() as conn:
            yield conn


def ttl_of(text: str) -> Millis:
    """Return a time to live in milliseconds. Raises ValueError with what is right."""
    try:
        ttl = parse_duration(text, field="ttl")
    except ChronoError as error:
        raise ValueError(error.message) from None
    if not LEAST_TTL <= ttl <= LONGEST_TTL:
        raise ValueError("ttl is from 1m to 90d.")
    return ttl
