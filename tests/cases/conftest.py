"""Leaders, worlds, clients and processes as the tests of the rooms have them."""

from tests.api.conftest import client, make_client
from tests.races.conftest import laid, shared_url, world
from tests.scheduler.conftest import leader
from tests.scheduler.test_process import start

__all__ = [
    "client",
    "laid",
    "leader",
    "make_client",
    "shared_url",
    "start",
    "world",
]
