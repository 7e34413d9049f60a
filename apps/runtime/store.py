"""The statements of this room, one function a file."""

from dataclasses import dataclass

from apps.runtime import sql
from apps.runtime.sessions import Connection
from chrono.rules.instants import MINUTE, Millis

_READ_CLOCK = sql.load("runtime", "read_clock")
_LIST_LEAVES = sql.load("runtime", "list_leaves")
_IS_EMPTY = sql.load("runtime", "is_empty")
_LISTEN = sql.load("runtime", "listen")
_NOTIFY = sql.load("runtime", "notify")
_TRY_REQUEST_KEY = sql.load("runtime", "try_request_key")
_TAKE_REQUEST_KEY = sql.load("runtime", "take_request_key")
_FIND_REQUEST_KEY = sql.load("runtime", "find_request_key")
_INSERT_REQUEST_KEY = sql.load("runtime", "insert_request_key")
_PURGE_REQUEST_KEYS = sql.load("runtime", "purge_request_keys")
_PURGE_SESSIONS = sql.load("runtime", "purge_sessions")
_FIND_OLD_SNAPSHOT = sql.load("runtime", "find_old_snapshot")

SNAPSHOT_OLD: Millis = MINUTE
"""A snapshot that is held for longer makes itself felt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedAnswer:
    """What was asked and answered under a request's key."""

    method: str
    path: str
    fingerprint: bytes
    status: int
    headers: str
    """JSON."""
    answer: str
    """JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A session whose snapshot keeps dead rows from being cleaned up."""

    pid: int
    name: str
    """The application's."""
    query: str
    """The beginning of what it said last."""
    seconds: int
    """How old its transaction is."""


def find_old_snapshot(
    conn: Connection, *, older: Millis = SNAPSHOT_OLD
) -> Snapshot | None:
    """Return the session that has held a snapshot longest, if for so long."""
    rows = _FIND_OLD_SNAPSHOT.run(conn, {"older": older})
    if not rows:
        return None
    [(pid, name, query, age)] = rows
    return Snapshot(pid=pid, name=name, query=query, seconds=age // 1000)


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


def try_request_key(conn: Connection, *, tenant: int, key: str) -> bool:
    """Take a key until the transaction ends; return whether nobody else has it."""
    [(taken,)] = _TRY_REQUEST_KEY.run(conn, {"tenant": tenant, "key": key})
    return bool(taken)


def take_request_key(conn: Connection, *, tenant: int, key: str) -> None:
    """Take a key until the transaction ends; waits as the session's timeout allows."""
    _TAKE_REQUEST_KEY.run(conn, {"tenant": tenant, "key": key})


def find_request_key(conn: Connection, *, tenant: int, key: str) -> KeyedAnswer | None:
    """Return what was answered under a key."""
    rows = _FIND_REQUEST_KEY.run(conn, {"tenant": tenant, "key": key})
    for method, path, fingerprint, status, headers, answer in rows:
        return KeyedAnswer(
            method=method,
            path=path,
            fingerprint=bytes(fingerprint),
            status=status,
            headers=headers,
            answer=answer,
        )
    return None


def insert_request_key(
    conn: Connection, *, tenant: int, key: str, entry: KeyedAnswer
) -> None:
    """Keep an answer under a key, unless there is one already."""
    _INSERT_REQUEST_KEY.change(
        conn,
        {
            "tenant": tenant,
            "key": key,
            "method": entry.method,
            "path": entry.path,
            "fingerprint": entry.fingerprint,
            "status": entry.status,
            "headers": entry.headers,
            "answer": entry.answer,
        },
    )


def purge_request_keys(conn: Connection, *, limit: int) -> int:
    """Delete keys that are over; return how many."""
    return _PURGE_REQUEST_KEYS.change(conn, {"limit": limit})


def purge_sessions(conn: Connection, *, limit: int) -> int:
    """Delete the admin's sessions that are over; return how many."""
    return _PURGE_SESSIONS.change(conn, {"limit": limit})
