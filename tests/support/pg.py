"""A PostgreSQL for the tests, a fresh database for each, and staged races.

One server serves a whole test session: the embedded one, the version that `PG` names,
or the one behind `DATABASE_URL`, where only databases of the tests' own are touched.
"""

import contextlib
import dataclasses
import itertools
import os
import queue
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import django.db
import psycopg
import pytest
from django.core.management import call_command
from django.test import override_settings
from psycopg import sql

from dev import postgres

Connection = psycopg.Connection[Any]

# Durability is not what unit databases are about, and deadlocks should show at once.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "deadlock_timeout": "100ms",
    "max_connections": 200,
    # The audit asks in which order rows were committed.
    "track_commit_timestamp": "on",
}
TEMPLATE = "template"
AHEAD = 2
"""How many databases are made before a test asks for one."""
ROOM = 4 * 1024**3
"""How much memory must be free to have the server's files there."""
_numbers = itertools.count(1)


def with_database(url: str, name: str) -> str:
    """Return the same server's address with another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Databases:
    """The databases of this test session on one server."""

    admin_url: str
    prefix: str
    supply: "Supply" = dataclasses.field(default_factory=lambda: Supply())

    def url(self, name: str) -> str:
        return with_database(self.admin_url, f"{self.prefix}_{name}")

    def create(self, name: str, *, template: str = "") -> str:
        """Make a database and return its address."""
        # Of a template this small copying files costs least.
        copy = " TEMPLATE {} STRATEGY FILE_COPY" if template else ""
        text = f"CREATE DATABASE {{}}{copy}"
        names = [f"{self.prefix}_{name}"]
        names += [f"{self.prefix}_{template}"] if template else []
        self._admin(sql.SQL(text).format(*map(sql.Identifier, names)))
        return self.url(name)

    def drop(self, name: str) -> None:
        """Drop a database and end whoever is still connected to it."""
        identifier = sql.Identifier(f"{self.prefix}_{name}")
        self._admin(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(identifier)
        )

    @contextlib.contextmanager
    def clone(self) -> Iterator[str]:
        """Lend a fresh copy of the migrated template; give its address."""
        name = self.supply.take()
        yield self.url(name)
        self.supply.give_back(name)

    def _admin(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.admin_url, autocommit=True) as conn:
            conn.execute(statement)


class Supply:
    """Makes copies of the template ahead of the tests, and drops what they gave back.

    A copy takes a tenth of a second, as long as many a test: a thread makes them on the
    other core.
    """

    def __init__(self) -> None:
        self._ready: queue.Queue[str | Exception] = queue.Queue()
        self._wanted: queue.Queue[str | None] = queue.Queue()

    def start(self, databases: Databases) -> None:
        """Begin to make copies; the template is migrated."""
        for _ in range(AHEAD):
            self._wanted.put("")
        threading.Thread(
            target=self._work, args=(databases,), name="databases", daemon=True
        ).start()

    def stop(self, databases: Databases) -> None:
        """Make no more, and drop what nobody took."""
        self._wanted.put(None)
        while isinstance(name := self._ready.get(timeout=60), str) and name:
            databases.drop(name)

    def take(self) -> str:
        """Return the name of a fresh copy."""
        self._wanted.put("")
        name = self._ready.get(timeout=60)
        if isinstance(name, Exception):
            raise name
        return name

    def give_back(self, name: str) -> None:
        """Drop a copy, some time later."""
        self._wanted.put(name)

    def _work(self, databases: Databases) -> None:
        while (name := self._wanted.get()) is not None:
            try:
                if name:
                    databases.drop(name)
                    continue
                fresh = f"t{next(_numbers)}"
                databases.create(fresh, template=TEMPLATE)
            except psycopg.Error as error:
                self._ready.put(error)
            else:
                self._ready.put(fresh)
        self._ready.put("")


@contextlib.contextmanager
def session_databases(given_url: str | None) -> Iterator[Databases]:
    """Lend the session's server, with a migrated template database on it."""
    with contextlib.ExitStack() as stack:
        if given_url:
            admin_url = given_url
        else:
            folder = Path(tempfile.mkdtemp(prefix="chrono-test-", dir=_memory()))
            server = postgres.Server(
                folder,
                binaries_folder=postgres.binaries(os.environ.get("PG") or "18"),
                settings=SETTINGS,
            )
            stack.callback(server.destroy)
            server.start()
            admin_url = server.url()
        databases = Databases(admin_url=admin_url, prefix=f"chrono_test_{os.getpid()}")
        stack.callback(databases.drop, TEMPLATE)
        with default_connection(databases.create(TEMPLATE)):
            call_command("migrate", verbosity=0)
        databases.supply.start(databases)
        stack.callback(databases.supply.stop, databases)
        yield databases


def _memory() -> str | None:
    """Return a folder in memory where that has room, None where the disk has to do.

    A database is some thousand files: on a disk that others write to it takes a second.
    """
    shared = "/dev/shm"
    try:
        room = os.statvfs(shared)
    except OSError:
        return None
    return shared if room.f_bavail * room.f_frsize >= ROOM else None


@contextlib.contextmanager
def default_connection(url: str) -> Iterator[None]:
    """Point Django's default connection, in every thread, at `url` for a while."""
    connection = django.db.connections["default"]
    # The dict is shared by the connections of all threads.
    kept = dict(connection.settings_dict)
    parts = psycopg.conninfo.conninfo_to_dict(url)
    connection.close()
    connection.settings_dict.update(
        NAME=parts.get("dbname"),
        HOST=parts.get("host", ""),
        PORT=parts.get("port", ""),
        USER=parts.get("user", ""),
        PASSWORD=parts.get("password", ""),
    )
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(kept)


@contextlib.contextmanager
def in_use(url: str) -> Iterator[None]:
    """Have Django, the settings and child processes use the database at ``url``."""
    moved = override_settings(DATABASE_URL=url, CHRONO_DIRECT_DATABASE_URL=url)
    with pytest.MonkeyPatch.context() as patch, moved, default_connection(url):
        patch.setenv("DATABASE_URL", url)
        yield


def wait_until_blocked(observer: Connection, pid: int, *, timeout: float = 10) -> None:
    """Return once the session `pid` waits for another session's lock.

    `observer` is an autocommit connection of neither side. Raises TimeoutError, with
    what the session does instead, after `timeout` seconds.
    """
    look = """
        SELECT wait_event_type = 'Lock' AND cardinality(pg_blocking_pids(pid)) > 0,
               state, wait_event_type, wait_event, query
        FROM pg_stat_activity WHERE pid = %s
    """
    row: tuple[Any, ...] | None = None
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        row = observer.execute(look, [pid]).fetchone()
        if row and row[0]:
            return
        time.sleep(0.002)
    raise TimeoutError(f"session {pid} waits for no lock within {timeout} s: {row}")
