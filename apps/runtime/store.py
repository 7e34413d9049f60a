"""The statements of this room, one function a file."""

from apps.runtime import sql
from apps.runtime.sessions import Connection

_READ_CLOCK = sql.load("runtime", "read_clock")
_LIST_LEAVES = sql.load("runtime", "list_leaves")
_IS_EMPTY = sql.load("runtime", "is_empty")
_LISTEN = sql.load("runtime", "listen")
_NOTIFY = sql.load("runtime", "notify")


def read_clock(conn: Connection) -> float:
    """Return the database's clock in epoch milliseconds."""
    [(moment,)] = _READ_CLOCK.run(conn)
    return float(moment)


def list_leaves(conn: Connection, *, parent: str) -> list[tuple[str, bool]]:
    """Return name and pending detach of each leaf of a table."""
    return [(n, bool(p)) for n, p in _LIST_LEAVES.run(conn, {"parent": parent})]


def is_empty(conn: Connection, *, table: str) -> bool:
    """Return whether a table has no row."""
    [(empty,)] = _IS_EMPTY.run(conn, table=table)
    return bool(empty)


def listen(conn: Connection, *, channel: str) -> None:
    """Hear a channel on this session from now on."""
    _LISTEN.change(conn, channel=channel)


def notify(conn: Connection, *, channel: str, payload: str) -> None:
    """Send a notice; on an autocommit session it goes out at once."""
    _NOTIFY.run(conn, {"channel": channel, "payload": payload})
