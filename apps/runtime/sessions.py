"""Sessions with Postgres: what each kind is set to, and why.

* ``hot``: fire, claim, settle. Autocommit, prepared, binary, one generic plan a
  statement. Planner switches are off because the hot tables are nearly empty in one
  second and full in the next: statistics must not choose the plan.
* ``fire``: a hot one that waits for a lock no longer than a fire may be late.
* ``leader``: holds the advisory locks of leadership and nothing else. Its timeouts
  end the session of a paused or cut-off process within 4 s, which frees its locks.
* ``listener``: LISTEN.
* ``voice``: NOTIFY, whose commits wait for one another: whoever fires meanwhile must
  not wait long for a hint.
* ``upkeep``: table upkeep with short lock timeouts.

Hot, firing, leader and listener sessions need Postgres itself: a pooler in transaction
mode would lend the locks, settings and prepared statements of one client to another.
"""

import time
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.uuid import UUIDBinaryDumper

from apps.runtime import arrays
from chrono.rules.errors import ChronoError

CONNECT_TIMEOUT_S = 5
REFUSED_FOR_S = 0.25
"""So long nobody else in this process asks a server again that gave no session. Each of
its sessions comes back by itself; together they would be a storm."""
OLDEST_SERVER = 150000

Connection = psycopg.Connection[tuple[Any, ...]]

_refused: dict[str, tuple[float, str]] = {}
"""By address, until when it is not asked again, and what was said."""

# Keepalives with client_connection_check_interval free a cut session in mid-statement;
# neither alone does.
NETWORK = {
    "tcp_user_timeout": "4000",
    "tcp_keepalives_idle": "2",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "2",
    "client_connection_check_interval": "1000",
}
LEADER = {
    **NETWORK,
    "idle_session_timeout": "4000",
    "idle_in_transaction_session_timeout": "4000",
    "transaction_timeout": "4000",
    "statement_timeout": "2000",
    "lock_timeout": "2000",
    "synchronous_commit": "on",
}
HOT = {
    **NETWORK,
    "idle_in_transaction_session_timeout": "4000",
    "statement_timeout": "10000",
    "lock_timeout": "2000",
    "synchronous_commit": "on",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    **{
        f"enable_{node}": "off"
        for node in (
            "seqscan",
            "hashjoin",
            "mergejoin",
            "bitmapscan",
            "material",
            "sort",
        )
    },
}
FIRE = {**HOT, "lock_timeout": "200"}
UPKEEP = {
    **NETWORK,
    "idle_in_transaction_session_timeout": "4000",
    "statement_timeout": "30000",
    "lock_timeout": "200",
}
LISTENER = NETWORK
VOICE = {**NETWORK, "statement_timeout": "200", "lock_timeout": "200"}

# Settings that a server of 15 or 16 does not know yet.
SINCE = {"transaction_timeout": 170000}
# These read 0 on a Unix socket, where there is no network to time out.
TCP_ONLY = frozenset(name for name in NETWORK if name.startswith("tcp_"))
# What a setting reads where the server's operating system has no such thing: macOS has
# no TCP_USER_TIMEOUT. The keepalives are what is left there.
UNKNOWN_TO_SYSTEM = {"tcp_user_timeout": "0"}


BROKEN = (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction)
"""Errors that a new session may not have: after a failover the old server is read-only,
and a new session looks for one that is not."""


class PooledSession(ChronoError):
    """This session goes through a connection pooler: leadership and LISTEN need
    Postgres itself. Set CHRONO_DIRECT_DATABASE_URL to the server's own address."""


class SettingRefused(ChronoError):
    """The server did not take a session setting that safety depends on."""


class ServerTooOld(ChronoError):
    """Chrono needs PostgreSQL 15 or newer."""


def connect_hot(url: str, *, name: str) -> Connection:
    """Return a session for the hot statements; raises as :func:`connect` does."""
    return _connect_hot(url, name=name, settings=HOT)


def connect_fire(url: str, *, name: str) -> Connection:
    """Return a hot session whose waits for locks are short, to fire on."""
    return _connect_hot(url, name=name, settings=FIRE)


def _connect_hot(url: str, *, name: str, settings: Mapping[str, str]) -> Connection:
    conn = connect(url, name=name, settings=settings, direct=True)
    conn.prepare_threshold = 0
    conn.prepared_max = 500
    # Integers travel as int8 whatever their size, and arrays in binary: one prepared
    # statement, not one per mix of sizes in a batch.
    conn.adapters.register_dumper(int, Int8BinaryDumper)
    conn.adapters.register_dumper(list, ListBinaryDumper)
    conn.adapters.register_dumper("uuid.UUID", UUIDBinaryDumper)
    arrays.register(conn.adapters)
    return conn


def connect_leader(url: str, *, name: str) -> Connection:
    """Return a session whose end is bounded, to hold advisory locks on."""
    return connect(url, name=name, settings=LEADER, direct=True)


def connect_listener(url: str, *, name: str) -> Connection:
    """Return a session for LISTEN."""
    return connect(url, name=name, settings=LISTENER, direct=True)


def connect_voice(url: str, *, name: str) -> Connection:
    """Return a session for NOTIFY, which waits for nobody for long."""
    return connect(url, name=name, settings=VOICE, direct=True)


def connect_upkeep(url: str, *, name: str) -> Connection:
    """Return a session for table upkeep, whose lock waits are short."""
    return connect(url, name=name, settings=UPKEEP, direct=True)


def connect(
    url: str, *, name: str, settings: Mapping[str, str], direct: bool
) -> Connection:
    """Return an autocommit session in UTC with ``settings`` in force.

    Raises :class:`PooledSession` where ``direct`` is asked for and a pooler answers,
    :class:`SettingRefused` where a setting did not take, :class:`ServerTooOld`, and
    ``psycopg.OperationalError`` where nobody answers within five seconds, or another
    session of this process just met with that.
    """
    until, why = _refused.get(url, (0.0, ""))
    if time.monotonic() < until:
        raise psycopg.OperationalError(why)
    try:
        conn: Connection = psycopg.connect(
            url,
            autocommit=True,
            application_name=name,
            connect_timeout=CONNECT_TIMEOUT_S,
            target_session_attrs="read-write",
        )
    except psycopg.OperationalError as error:
        _refused[url] = time.monotonic() + REFUSED_FOR_S, str(error)
        raise
    try:
        if direct:
            refuse_pooler(conn)
        _apply(conn, {"timezone": "UTC", **settings})
    except BaseException:
        conn.close()
        raise
    return conn


def refuse_pooler(conn: Connection) -> None:
    """Raise :class:`PooledSession` unless ``conn`` talks to the server itself.

    A pooler invents the backend pid of its start-up answer; the server tells its own.
    """
    row = conn.execute("SELECT pg_backend_pid()").fetchone()
    if row is None or row[0] != conn.info.backend_pid:
        raise PooledSession


def _apply(conn: Connection, settings: Mapping[str, str]) -> None:
    version = conn.info.server_version
    if version < OLDEST_SERVER:
        raise ServerTooOld(f"Chrono needs PostgreSQL 15 or newer, not {version}.")
    wanted = {k: v for k, v in settings.items() if version >= SINCE.get(k, 0)}
    conn.execute(
        "SELECT " + ", ".join(["set_config(%s, %s, false)"] * len(wanted)),
        [part for pair in wanted.items() for part in pair],
    )
    if conn.info.host.startswith("/") or not conn.info.host:
        wanted = {k: v for k, v in wanted.items() if k not in TCP_ONLY}
    # pg_settings spells "TimeZone" its own way.
    rows = conn.execute(
        "SELECT lower(name), setting FROM pg_settings WHERE lower(name) = ANY(%s)",
        [list(wanted)],
    ).fetchall()
    refused = [
        name
        for name, value in rows
        if value != wanted[name] and value != UNKNOWN_TO_SYSTEM.get(name)
    ]
    if refused:
        raise SettingRefused(f"The server did not take: {', '.join(sorted(refused))}.")
