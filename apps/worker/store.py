"""The statements of this room, one function a file."""

import uuid

from apps.runtime import sql
from apps.runtime.sessions import Connection

_HOLD_IDENTITY = sql.load("worker", "hold_identity")


def hold_identity(conn: Connection, *, worker: uuid.UUID) -> bool:
    """Lock a worker's identity for as long as the session lives; return whether it did.

    Each success adds one more hold: call it once a session.
    """
    [(held,)] = _HOLD_IDENTITY.run(conn, {"worker": worker})
    return bool(held)
