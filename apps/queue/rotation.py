"""Rotation: keep dead rows from piling up under the claims.

New ready rows go to one slice at a time. When it is large or old, the next free one
takes over; what the claims leave in an old slice is moved on, and the emptied slice is
truncated, which works whatever old snapshot somebody holds. A leader may insert by a
stale slice number: nothing is lost, since claims look at all slices.
"""

from dataclasses import dataclass, field

import psycopg

from apps.queue import store
from apps.runtime.sessions import Connection
from chrono.rules.instants import Millis

LARGE = 3_000_000
OLD: Millis = 5_000
LEFTOVERS = 4_000
MOVE = 1_000
LOCK_TIMEOUT = "50ms"
BACK_OFF: Millis = 10_000


@dataclass(slots=True, kw_only=True)
class Rotation:
    """The ring's keeper; call :meth:`step` every second or two."""

    published_at: Millis = 0
    rest_until: dict[int, Millis] = field(default_factory=dict)
    """Slices whose lock was not to be had, and until when they are left alone."""

    def step(self, conn: Connection, *, current: int, now: Millis) -> int:
        """Rotate, move leftovers and truncate where due; return the current slice.

        A slice that was current is left alone until the next step: leaders insert there
        until they have looked. An idle ring costs one statement that writes nothing.
        """
        sizes = store.measure_slices(conn)
        known = current
        worn = sizes[current] >= LARGE or now - self.published_at >= OLD
        if sizes[current] and worn:
            current = self._turn(conn, current=current, sizes=sizes, now=now)
        for number, size in sizes.items():
            if not size or number in (current, known):
                continue
            if now >= self.rest_until.get(number, 0):
                self._empty(conn, number=number, current=current, now=now)
        return current

    def _turn(
        self, conn: Connection, *, current: int, sizes: dict[int, int], now: Millis
    ) -> int:
        # A slice with a backlog is passed over: it must not stop the ring.
        for steps in range(1, store.SLICES):
            following = (current + steps) % store.SLICES
            if not sizes[following]:
                store.publish_slice(conn, current=following)
                self.published_at = now
                return following
        return current

    def _empty(
        self, conn: Connection, *, number: int, current: int, now: Millis
    ) -> None:
        left = store.count_leftovers(conn, number=number, limit=LEFTOVERS + 1)
        if left > LEFTOVERS:
            return  # A backlog, not leftovers: moving it would be work for nothing.
        while left > 0:
            moved = store.move_leftovers(
                conn, number=number, current=current, limit=MOVE
            )
            if not moved:
                return  # Claims hold the rest; it is theirs.
            left -= moved
        try:
            truncate_if_empty(conn, number=number)
        except psycopg.errors.LockNotAvailable:
            self.rest_until[number] = now + BACK_OFF


def truncate_if_empty(conn: Connection, *, number: int) -> bool:
    """Truncate a slice unless a look under its lock finds a row; return whether done.

    The look is a statement of its own, and its transaction READ COMMITTED: its snapshot
    is taken after the lock, so it sees what a slow writer committed before.
    Raises ``LockNotAvailable`` after 50 ms.
    """
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        conn.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        store.lock_slice(conn, number=number)
        if store.count_leftovers(conn, number=number, limit=1):
            return False
        store.truncate_slice(conn, number=number)
        return True
