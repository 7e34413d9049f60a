"""Leaders, worlds, clients and processes as the tests of the rooms have them."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command

from dev import postgres
from tests.api.conftest import client, make_client
from tests.queue.conftest import ring
from tests.races.conftest import laid, shared_url, world
from tests.scheduler.conftest import leader
from tests.scheduler.test_process import start
from tests.support import pg

__all__ = [
    "client",
    "laid",
    "leader",
    "make_client",
    "ring",
    "shared_url",
    "start",
    "world",
]


@pytest.fixture
def own_server() -> Iterator[postgres.Server]:
    """A server of this test's alone; its migrated database is the one in use."""
    server = postgres.Server(
        Path(tempfile.mkdtemp(prefix="chrono-own-")),
        port=postgres.free_port(),
        binaries_folder=postgres.binaries(os.environ.get("PG") or "18"),
        settings=pg.SETTINGS,
    )
    try:
        server.start()
        with pg.in_use(server.url()):
            call_command("migrate", verbosity=0)
            yield server
    finally:
        server.destroy()
