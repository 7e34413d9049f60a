"""Leaders, clients and processes as the tests of the rooms have them."""

from tests.api.conftest import client, make_client
from tests.scheduler.conftest import leader
from tests.scheduler.test_process import start

__all__ = ["client", "leader", "make_client", "start"]
