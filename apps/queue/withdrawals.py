"""Clear away what cancelled runs left behind."""

from apps.queue import store
from apps.runtime.sessions import Connection


def clear(conn: Connection) -> int:
    """Take withdrawn runs out of ready, forget those that lie nowhere; return those."""
    if not store.has_withdrawn(conn):
        return 0
    for number in range(store.SLICES):
        store.take_out_withdrawn(conn, number=number)
    return store.forget_withdrawn(conn)
