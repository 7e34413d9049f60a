"""The beat: one row for all leases of a process, on a thread and session of its own.

The session also holds the worker's identity, as its claiming and settling ones do: when
none is left, the process is gone. Neither a busy event loop nor a slow claim delays a
beat.
"""

import asyncio
import contextlib
import logging
import os
import select
import threading
import uuid
from collections.abc import Callable, Sequence

import psycopg

from apps.runs import worker_store
from apps.runtime import sessions
from apps.runtime.clock import DatabaseClock
from apps.runtime.sessions import Connection
from apps.worker import store
from apps.worker.lines import sever
from chrono.rules.errors import ChronoError
from chrono.rules.instants import SECOND, Millis
from chrono.rules.lease import next_beat_in, trusted_until

log = logging.getLogger("chrono.worker")

RETRY_AFTER: Millis = 500
LONGEST_RETRY: Millis = 2 * SECOND

# A process whose network was cut may be back before its lease ends: the server keeps
# its session, and with it its identity, for nearly as long.
SETTINGS = {
    **sessions.NETWORK,
    "tcp_user_timeout": "25000",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "idle_session_timeout": "25000",
    "idle_in_transaction_session_timeout": "4000",
    "statement_timeout": "4000",
    "lock_timeout": "2000",
    "synchronous_commit": "on",
}


def connect_beat(url: str, *, worker: uuid.UUID) -> Connection:
    """Return a session for beats that holds the worker's identity.

    Raises as :func:`apps.runtime.sessions.connect` does.
    """
    conn = sessions.connect(
        url, name="chrono worker beat", settings=SETTINGS, direct=True
    )
    return hold(conn, worker=worker)


def hold(conn: Connection, *, worker: uuid.UUID) -> Connection:
    """Have a session hold the worker's identity; return it, or close it and raise."""
    try:
        store.hold_identity(conn, worker=worker)
    except BaseException:
        conn.close()
        raise
    return conn


class Beat:
    """The beating thread of one life of a worker.

    ``trusted_until`` and ``horizon`` are read by the loop; ``told`` is called in the
    loop with the cancelled runs of each beat, or with None once marked dead. ``hire``
    is called in the loop while runs of ``queues`` are set aside.
    """

    def __init__(
        self,
        *,
        url: str,
        worker: uuid.UUID,
        clock: DatabaseClock,
        monotonic: Callable[[], Millis],
        loop: asyncio.AbstractEventLoop,
        told: Callable[[list[uuid.UUID] | None], None],
        hire: Callable[[], None] | None = None,
        queues: Sequence[str] = (),
        trusted_until: Millis,
        horizon: Millis,
    ) -> None:
        self.trusted_until = trusted_until
        self.horizon = horizon
        self._url = url
        self._worker = worker
        self._clock = clock
        self._monotonic = monotonic
        self._loop = loop
        self._told = told
        self._hire = hire
        self._queues = queues
        self._conn: Connection | None = None
        self._stopping = False
        self._retry = RETRY_AFTER
        self._ear, self._mouth = os.pipe()
        self._ending, self._ended = threading.Lock(), False
        self._thread = threading.Thread(target=self._run, name="beat", daemon=True)

    def start(self) -> None:
        """Start beating, the first time at once."""
        self._thread.start()

    def stop(self) -> None:
        """Beat no more; the session ends, even one that hangs."""
        self._stopping = True
        with self._ending:
            if not self._ended:
                os.write(self._mouth, b"\0")
        conn = self._conn
        if conn is not None:
            sever(conn)

    def step(self) -> Millis:
        """Beat once; return how long to wait for the next."""
        sent = self._monotonic()
        try:
            if self._conn is None or self._conn.closed:
                self._conn = connect_beat(self._url, worker=self._worker)
            conn = self._conn
            asked = self._monotonic()
            news = worker_store.beat_if_alive(
                conn, worker=self._worker, queues=self._queues
            )
            if news is not None:
                self.trusted_until = trusted_until(sent)
                self.horizon = news.horizon
                self._clock.hear(news.now, sent=asked, heard=self._monotonic())
                if not self._clock.fit:
                    # A beat commits, which takes its time: this measures better.
                    self._clock.probe(conn, probes=1)
                if self._hire is not None and news.set_aside:
                    self._call(self._hire)
        except (psycopg.Error, ChronoError) as error:
            self._hang_up()
            if not self._stopping:
                log.warning("beat failed: %s", error)
            wait, self._retry = self._retry, min(LONGEST_RETRY, self._retry * 2)
            return wait
        self._retry = RETRY_AFTER
        self._tell(None if news is None else news.cancelled)
        if not self._clock.fit:
            # Nothing is claimed until it is: see to it soon.
            return max(self._clock.probe_in(), RETRY_AFTER)
        return next_beat_in(sent, self._monotonic())

    def _run(self) -> None:
        while not self._stopping:
            self._wait(self.step())
        self._hang_up()
        with self._ending:
            self._ended = True
            os.close(self._ear)
            os.close(self._mouth)

    def _wait(self, wait: Millis) -> None:
        """Return after the wait, or once the session breaks: then to beat at once."""
        poll = select.poll()
        poll.register(self._ear, select.POLLIN)
        with contextlib.suppress(psycopg.Error):
            if self._conn is not None:
                poll.register(self._conn.fileno(), select.POLLIN)
        poll.poll(wait)

    def _tell(self, cancelled: list[uuid.UUID] | None) -> None:
        if cancelled is None:
            # Nothing is left to renew.
            self._stopping = True
        if cancelled or cancelled is None:
            self._call(self._told, cancelled)

    def _call(self, told: Callable[..., None], *what: object) -> None:
        # The loop may be closed already: then nobody wants to know.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(told, *what)

    def _hang_up(self) -> None:
        if self._conn is not None:
            self._conn.close()
        self._conn = None
