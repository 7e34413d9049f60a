"""Fixtures for all tests. Only a test that asks for a database pays for one."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import django
import hypothesis
import psycopg
import pytest

# Taken away before the settings are read: a test that forgot to ask for a database
# must fail, not write into the developer's.
GIVEN_DATABASE_URL = os.environ.pop("DATABASE_URL", None)
os.environ.pop("CHRONO_DIRECT_DATABASE_URL", None)
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
django.setup()

from tests.support import pg  # noqa: E402  (needs the settings above)

# The same examples each time: a red test stays red, and a slow machine is no failure.
hypothesis.settings.register_profile("chrono", derandomize=True, deadline=None)
hypothesis.settings.load_profile("chrono")


class Connect(Protocol):
    """Opens one more autocommit session; keywords go to psycopg."""

    def __call__(self, **options: Any) -> pg.Connection: ...


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that look at a server, so that `-m server` picks them."""
    for item in items:
        if "databases" in getattr(item, "fixturenames", ()):
            item.add_marker("server")


@pytest.fixture(scope="session")
def databases() -> Iterator[pg.Databases]:
    """The session's server with its migrated template."""
    with pg.session_databases(GIVEN_DATABASE_URL) as databases:
        yield databases


@pytest.fixture
def dsn(databases: pg.Databases) -> Iterator[str]:
    """The address of a fresh migrated database, for this test alone.

    Django's default connection, the settings and the environment of child processes
    point at it too.
    """
    with databases.clone() as url, pg.in_use(url):
        yield url


@pytest.fixture
def database(dsn: str) -> str:
    """The same as `dsn`, for tests that go through Django or the rooms."""
    return dsn


@pytest.fixture
def connect(dsn: str) -> Iterator[Connect]:
    """A factory of autocommit sessions in UTC, closed after the test."""
    opened: list[pg.Connection] = []

    def open_one(**options: Any) -> pg.Connection:
        settings = {"autocommit": True, "options": "-c TimeZone=UTC", **options}
        opened.append(psycopg.connect(dsn, **settings))
        return opened[-1]

    yield open_one
    for conn in opened:
        conn.close()


@pytest.fixture
def second_connection(connect: Connect) -> pg.Connection:
    """One more session: the other side of a race, or its observer."""
    return connect()


@pytest.fixture
def background() -> Iterator[Callable[..., Future[Any]]]:
    """Runs a call in a thread of its own: `background(f, x).result(timeout=5)`."""
    pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="race")
    yield pool.submit
    pool.shutdown(wait=False, cancel_futures=True)
