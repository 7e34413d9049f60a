"""What the tests of the floor share."""

import socket

import pytest


@pytest.fixture
def unused_port() -> int:
    """A port of this machine at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        return int(door.getsockname()[1])
