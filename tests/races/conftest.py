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

WIPE = """
    DELETE FROM chrono_timer; DELETE FROM chrono_timer_far; TRUNCATE chrono_ready;
    DELETE FROM chrono_blocked;
    DELETE FROM chrono_lease; DELETE FROM chrono_occurrence; DELETE FROM chrono_run;
    DELETE FROM chrono_attempt; DELETE FROM chrono_dead_letter;
    DELETE FROM chrono_withdrawn; DELETE FROM chrono_slot; DELETE FROM chrono_worker;
    DELETE FROM chrono_job_revision; DELETE FROM chrono_job;
    UPDATE chrono_dispatch_state SET slice = 0
"""
type NewWorld = Callable[[], contextlib.AbstractContextManager[World]]
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def laid(databases: pg.Databases) -> Iterator[str]:
    """The name of one more template, in which upkeep was done.

    Other folders borrow these fixtures, and then have databases of their own.
    """
    name = f"laid{next(_numbers)}"
    url = databases.create(name, template=pg.TEMPLATE)
    with contextlib.closing(connect_upkeep(url, name="upkeep")) as conn:
        now = int(read_clock(conn))
        ensure_buckets(conn, now=now)
        ensure_days(conn, now=now)
    yield name
    databases.drop(name)


@pytest.fixture(scope="session")
def new_world(databases: pg.Databases, laid: str) -> NewWorld:
    """Makes worlds, each in a database of its own."""

    @contextlib.contextmanager
    def make() -> Iterator[World]:
        name = f"race{next(_numbers)}"
        url = databases.create(name, template=laid)
        observer = observe(url)
        world = World(url, observer)
        try:
            yield world
        finally:
            world.close()
            observer.close()
            databases.drop(name)

    return make


@pytest.fixture(scope="session")
def shared_url(databases: pg.Databases, laid: str) -> Iterator[str]:
    """A database for one test after the other."""
    name = f"shared{next(_numbers)}"
    yield databases.create(name, template=laid)
    databases.drop(name)


@pytest.fixture
def world(shared_url: str) -> Iterator[World]:
    """A world without jobs, for this test; its buckets and days stay as they are."""
    with contextlib.closing(observe(shared_url)) as observer:
        observer.execute(WIPE)
        made = World(shared_url, observer)
        yield made
        made.close()


@pytest.fixture
def edit_world(world: World) -> Iterator[World]:
    """A world whose database Django's default connection, in any thread, is to."""
    with pg.default_connection(world.url):
        yield world


@pytest.fixture
def own_world(new_world: NewWorld) -> Iterator[World]:
    """A world in a database of its own, for a test that changes tables."""
    with new_world() as made:
        yield made


def observe(url: str) -> pg.Connection:
    """Return the session of somebody who looks on."""
    return psycopg.connect(url, autocommit=True, options="-c TimeZone=UTC -c jit=off")
