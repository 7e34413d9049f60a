"""The statements of this room, one function a file."""

import uuid

from apps.runtime import sql
from apps.runtime.sessions import Connection

_HOLD_IDENTITY = sql.load("worker", "hold_identity")


def hold_identity(conn: Connection, *, worker: uuid.UUID) -> None:
    """Hold a worker's identity for as long as the session lives; call it once a
    session. Other sessions of the worker hold it as well."""
    _HOLD_IDENTITY.run(conn, {"worker": worker})
