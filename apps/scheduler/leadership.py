"""Election: an even share of the partitions, by advisory locks on one session.

The locks make election fast; they make nothing safe. Safety is the fence that each
takeover raises and every write of a leader carries. Any doubt about the session means:
not a leader.
"""

import contextlib
import logging
import os
import queue
import socket
import threading
import uuid
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psycopg

from apps.runtime.process import Pulse
from apps.runtime.sessions import Connection
from apps.scheduler import store
from apps.scheduler.store import Term
from chrono.rules.errors import ChronoError
from chrono.rules.share import to_release, to_try

log = logging.getLogger("chrono.scheduler")

ALONE_S = 1.0
AMONG_OTHERS_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What the firing loop must hear: terms begun, partitions given up or lost."""

    gained: tuple[Term, ...] = ()
    lost: frozenset[int] = frozenset()


class Leadership(threading.Thread):
    """Keeps this process's share of the partitions; one session, one thread."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        *,
        wake: Callable[[], None],
        pulse: Pulse,
    ) -> None:
        super().__init__(name="leadership", daemon=True)
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.changes: queue.SimpleQueue[Change] = queue.SimpleQueue()
        self._pulse = pulse
        self._connect = connect
        self._wake = wake
        self._conn: Connection | None = None
        self._held: dict[int, Term] = {}
        self._over: queue.SimpleQueue[Term] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._look_now = threading.Event()

    def run(self) -> None:
        """Step until told to stop, then give everything back."""
        failures = 0
        while not self._stopping.is_set():
            try:
                wait = self.step()
                failures = 0
            except (psycopg.Error, ChronoError) as error:
                log.warning("leadership lost: %s", str(error).splitlines()[0])
                self._lose_session()
                failures += 1
                wait = min(8.0, 0.25 * 2**failures)
            self._look_now.wait(wait)
            self._look_now.clear()
        self._resign()

    def look(self) -> None:
        """Step at once: another scheduler said that it goes."""
        self._look_now.set()

    def retake(self, terms: Iterable[Term]) -> None:
        """Hear that these terms are over though nobody told: begin new ones at once.

        Only where this session still holds the partition's lock; else whoever holds it
        leads. Without this a partition whose fence moved by another hand than a
        leader's would have a lock and no leader.
        """
        for term in terms:
            self._over.put(term)
        self._look_now.set()

    def stop(self) -> None:
        """Give up all partitions and end the session; returns when done."""
        self._stopping.set()
        self._look_now.set()
        if self.is_alive():
            self.join(timeout=2.0)
        else:
            self._resign()

    def step(self) -> float:
        """Adjust the share held to the number of schedulers; return seconds to wait.

        The query is the session's heartbeat too: the server ends a session that is
        silent for 4 s, which frees its locks.
        """
        if self._conn is None:
            self._conn = self._connect()
            member = zlib.crc32(self.owner.encode()) & 0x7FFF_FFFF
            store.join_members(self._conn, member=member)
        self._pulse.beat()
        self._pulse.armed = bool(self._held)
        members = store.list_members(self._conn)
        excess = to_release(self._held.keys(), members.count)
        if excess:
            self._tell(Change(lost=frozenset(excess)))
            store.release_partitions(self._conn, parts=excess)
            for part in excess:
                del self._held[part]
            log.info("gave up %s of my partitions", len(excess))
        self._begin(self._conn, self._hear_over())
        wanted = to_try(
            self._held.keys(),
            members.taken - self._held.keys(),
            members.count,
            self.owner,
        )
        if wanted:
            self._begin(self._conn, store.try_partitions(self._conn, parts=wanted))
        return ALONE_S if members.count == 1 else AMONG_OTHERS_S

    def _hear_over(self) -> list[int]:
        """Return the partitions held under a term that was reported over."""
        parts: set[int] = set()
        while True:
            try:
                term = self._over.get_nowait()
            except queue.Empty:
                return sorted(parts)
            held = self._held.get(term.part)
            if held is not None and held.fence == term.fence:
                parts.add(term.part)

    def _begin(self, conn: Connection, parts: list[int]) -> None:
        """Begin a term in each of these partitions, whose locks this session holds."""
        if not parts:
            return
        # On the lock's own session: if that is dead, so is the takeover. A fence counts
        # from when its commit is acknowledged.
        terms = store.take_over(conn, parts=parts, owner=self.owner)
        self._held |= {term.part: term for term in terms}
        self._pulse.armed = True
        self._tell(Change(gained=tuple(terms)))
        log.info("took over %s partitions, %s held", len(terms), len(self._held))

    def _lose_session(self) -> None:
        self._pulse.armed = False
        if self._held:
            self._tell(Change(lost=frozenset(self._held)))
            self._held = {}
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _resign(self) -> None:
        with contextlib.suppress(psycopg.Error):
            if self._conn is not None and self._held:
                store.release_partitions(self._conn, parts=sorted(self._held))
        self._lose_session()

    def _tell(self, change: Change) -> None:
        self.changes.put(change)
        self._wake()
