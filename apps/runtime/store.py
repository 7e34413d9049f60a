"""The statements of this room, one function a file."""

from apps.runtime import sql
from apps.runtime.sessions import Connection

READ_CLOCK = sql.load("runtime", "read_clock")


def read_clock(conn: Connection) -> float:
    """Return the database's clock in epoch milliseconds."""
    [(moment,)] = READ_CLOCK.run(conn)
    return float(moment)
