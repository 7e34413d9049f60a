"""Worlds for races: fresh databases whose buckets and days are made already."""

import contextlib
import itertools
from collections.abc import Callable, Iterator

import psycopg
import pytest

from apps.runs.days import ensure_days
from apps.runtime.sessions import connect_upkeep
from apps.runtime.store import read_clock
from apps.timers.buckets import ensure_buckets
from tests.races.world import World
from tests.support import pg

LAID = "laid"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def laid(databases: pg.Databases) -> Iterator[pg.Databases]:
    """The server's databases with one more template, in which upkeep was done."""
    url = databases.create(LAID, template=pg.TEMPLATE)
    with contextlib.closing(connect_upkeep(url, name="upkeep")) as conn:
        now = int(read_clock(conn))
        ensure_buckets(conn, now=now)
        ensure_days(conn, now=now)
    yield databases
    databases.drop(LAID)


@pytest.fixture(scope="session")
def new_world(
    laid: pg.Databases,
) -> Callable[[], contextlib.AbstractContextManager[World]]:
    """Makes worlds, each in a database of its own."""

    @contextlib.contextmanager
    def make() -> Iterator[World]:
        name = f"race{next(_numbers)}"
        url = laid.create(name, template=LAID)
        observer = psycopg.connect(
            url, autocommit=True, options="-c TimeZone=UTC -c jit=off"
        )
        world = World(url, observer)
        try:
            yield world
        finally:
            world.close()
            observer.close()
            laid.drop(name)

    return make


@pytest.fixture
def world(
    new_world: Callable[[], contextlib.AbstractContextManager[World]],
) -> Iterator[World]:
    """One world, for this test alone."""
    with new_world() as made:
        yield made
