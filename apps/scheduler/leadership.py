"""Election: an even share of the partitions, by advisory locks on one session.

The locks make election fast; they make nothing safe. Safety is the fence that each
takeover raises and every write of a leader carries. Any doubt about the session means:
not a leader.

A partition whose row somebody holds is set aside and taken over when it is free;
meanwhile the others are led.
"""

import contextlib
import logging
import os
import queue
import socket
import threading
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psycopg

from apps.runtime.process import Pulse, rest_after
from apps.runtime.sessions import Connection
from apps.scheduler import store
from apps.scheduler.store import Members, Term
from chrono.rules.errors import ChronoError
from chrono.rules.instants import Millis
from chrono.rules.share import to_release, to_try

log = logging.getLogger("chrono.scheduler")

ALONE_S = 1.0
AMONG_OTHERS_S = 0.5
BLOCKED_S = 0.1
"""Between two tries at a partition whose row somebody holds, the first few times."""
NAMED_AT_TRY = 5
ENDED_AT_TRY = 10
NAMED_EVERY = 20
HELD_FOR: Millis = 500
"""A row that one transaction holds for this long is not just being edited."""
BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled)
"""Somebody has the table, or took a row since it was looked at: next time."""


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
        firing: int,
        excuse: Callable[[], None],
    ) -> None:
        """``firing`` is the backend pid of the session on which this process fires.

        ``excuse`` is called while that session waits for a lock: it is not hung.
        """
        super().__init__(name="leadership", daemon=True)
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.changes: queue.SimpleQueue[Change] = queue.SimpleQueue()
        self._pulse = pulse
        self._connect = connect
        self._wake = wake
        self._firing = firing
        self._excuse = excuse
        self._conn: Connection | None = None
        self._held: dict[int, Term] = {}
        # Partitions whose lock is had and whose row somebody holds: tries so far.
        self._blocked: Counter[int] = Counter()
        self._waited_for: set[int] = set()
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
                wait = rest_after(failures)
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
        members = self._look_around(self._conn)
        mine = self._held.keys() | self._blocked.keys()
        excess = to_release(mine, members.count)
        if excess:
            self._tell(Change(lost=frozenset(excess)))
            store.release_partitions(self._conn, parts=excess)
            for part in excess:
                self._held.pop(part, None)
                del self._blocked[part]
            mine -= set(excess)
            log.info("gave up %s of my partitions", len(excess))
        begin = {*self._blocked, *self._hear_over()}
        wanted = to_try(mine, members.taken - mine, members.count, self.owner)
        if wanted:
            begin |= set(store.try_partitions(self._conn, parts=wanted))
        self._begin(self._conn, begin)
        if any(tries < ENDED_AT_TRY for tries in self._blocked.values()):
            return BLOCKED_S
        return ALONE_S if members.count == 1 else AMONG_OTHERS_S

    def _look_around(self, conn: Connection) -> Members:
        """Return who takes part; see to whoever is in the way of this process."""
        try:
            seen = store.look_around(conn, firing=self._firing, parts=[*self._held])
        except BUSY:
            # Somebody has the table of partitions: then the firing session waits too.
            self._look_at_firing(conn)
            return store.list_members(conn)
        if seen.firing_waits:
            self._look_at_firing(conn)
        else:
            self._waited_for = set()
        if seen.any_held:
            self._set_aside(conn)
        return seen.members

    def _look_at_firing(self, conn: Connection) -> None:
        """Say for whom the firing session waits, once for each."""
        blockers = store.list_waits(conn, pid=self._firing)
        if blockers:
            self._excuse()
        for blocker in blockers:
            if blocker.pid not in self._waited_for:
                log.warning("firing waits for a lock of %s", blocker)
        self._waited_for = {blocker.pid for blocker in blockers}

    def _set_aside(self, conn: Connection) -> None:
        """Give up the terms of partitions whose rows somebody holds for a while.

        A fire would wait for them, and all that is fired with them too.
        """
        with contextlib.suppress(*BUSY):
            for part, holder in store.list_holders(conn, parts=[*self._held]).items():
                if holder.pid == self._firing or (holder.age or 0) < HELD_FOR:
                    continue
                log.warning("partition %s is set aside: held by %s", part, holder)
                self._tell(Change(lost=frozenset({part})))
                del self._held[part]
                self._blocked[part] = 0

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

    def _begin(self, conn: Connection, parts: set[int]) -> None:
        """Begin a term in those of these partitions that nobody holds the row of.

        This session has the locks of them all; the others are tried again.
        """
        if not parts:
            return
        # On the lock's own session: if that is dead, so is the takeover. A fence counts
        # from when its commit is acknowledged.
        terms: list[Term] = []
        with contextlib.suppress(*BUSY):
            if free := store.list_unlocked(conn, parts=sorted(parts)):
                terms = store.take_over(conn, parts=free, owner=self.owner)
        if terms:
            self._held |= {term.part: term for term in terms}
            self._pulse.armed = True
            self._tell(Change(gained=tuple(terms)))
            log.info("took over %s partitions, %s held", len(terms), len(self._held))
        blocked = parts - {term.part for term in terms}
        self._blocked = Counter({part: self._blocked[part] + 1 for part in blocked})
        # Where the table itself is locked, this waits in vain, too.
        with contextlib.suppress(*BUSY):
            self._pulse.beat()
            self._look_at_holders(conn)

    def _look_at_holders(self, conn: Connection) -> None:
        """Say who holds what cannot be taken over; end who is deposed and holds it."""
        named = [part for part, tries in self._blocked.items() if _is_named(tries)]
        if named:
            holders = store.list_holders(conn, parts=named)
            for part in named:
                holder = holders.get(part, "somebody")
                log.warning("partition %s waits for a leader: held by %s", part, holder)
        late = [part for part, tries in self._blocked.items() if tries >= ENDED_AT_TRY]
        if late and store.end_deposed(conn, parts=late, own=self._firing):
            log.warning("ended a deposed leader's session, which held partitions")

    def _lose_session(self) -> None:
        self._pulse.armed = False
        if self._held:
            self._tell(Change(lost=frozenset(self._held)))
            self._held = {}
        self._blocked.clear()
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _resign(self) -> None:
        with contextlib.suppress(psycopg.Error):
            if self._conn is not None and (mine := {*self._held, *self._blocked}):
                store.release_partitions(self._conn, parts=sorted(mine))
        self._lose_session()

    def _tell(self, change: Change) -> None:
        self.changes.put(change)
        self._wake()


def _is_named(tries: int) -> bool:
    return tries == NAMED_AT_TRY or (tries > ENDED_AT_TRY and not tries % NAMED_EVERY)
