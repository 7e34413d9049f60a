"""The statements of this room, one function a file."""

from dataclasses import dataclass

from apps.runtime import sql
from apps.runtime.sessions import Connection
from chrono.rules.instants import Millis, to_millis

SLICES = 8

_PUBLISH_SLICE = sql.load("queue", "publish_slice")
_MEASURE_SLICES = sql.load("queue", "measure_slices")
_COUNT_LEFTOVERS = sql.load("queue", "count_leftovers")
_MOVE_LEFTOVERS = sql.load("queue", "move_leftovers")
_LOCK_SLICE = sql.load("queue", "lock_slice")
_TRUNCATE_SLICE = sql.load("queue", "truncate_slice")
_TAKE_OUT_WITHDRAWN = sql.load("queue", "take_out_withdrawn")
_HAS_WITHDRAWN = sql.load("queue", "has_withdrawn")
_FORGET_WITHDRAWN = sql.load("queue", "forget_withdrawn")
_INSERT_PAUSE = sql.load("queue", "insert_pause")
_DELETE_PAUSE = sql.load("queue", "delete_pause")
_LIST_PAUSES = sql.load("queue", "list_pauses")
_PURGE_PASSES = sql.load("queue", "purge_passes")


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRow:
    """A queue whose runs of a tenant are held."""

    tenant: int
    queue: str
    paused_at: Millis
    paused_by: str
    note: str
    held: int | None
    """How many runs are, up to 10,000; None where that was not asked."""


def table_of(current: int) -> str:
    """Return the table of a slice."""
    return f"chrono_ready_{current}"


def publish_slice(conn: Connection, *, current: int) -> None:
    """Send new ready rows to this slice; a leader that has not heard may go on."""
    _PUBLISH_SLICE.change(conn, {"slice": current})


def measure_slices(conn: Connection) -> dict[int, int]:
    """Return the bytes of each slice's heap."""
    return {int(number): int(size) for number, size in _MEASURE_SLICES.run(conn)}


def count_leftovers(conn: Connection, *, number: int, limit: int) -> int:
    """Return how many rows a slice has, counting no further than ``limit``."""
    [(count,)] = _COUNT_LEFTOVERS.run(conn, {"limit": limit}, slice=table_of(number))
    return int(count)


def move_leftovers(conn: Connection, *, number: int, current: int, limit: int) -> int:
    """Move up to ``limit`` rows of an old slice into the current; return how many."""
    return _MOVE_LEFTOVERS.change(
        conn, {"limit": limit, "current": current}, slice=table_of(number)
    )


def lock_slice(conn: Connection, *, number: int) -> None:
    """Lock a slice against everybody until the open transaction ends."""
    _LOCK_SLICE.change(conn, slice=table_of(number))


def truncate_slice(conn: Connection, *, number: int) -> None:
    """Truncate a slice in the transaction that locked it and found it empty."""
    _TRUNCATE_SLICE.change(conn, slice=table_of(number))


def take_out_withdrawn(conn: Connection, *, number: int) -> int:
    """Delete a slice's withdrawn runs; return how many."""
    return _TAKE_OUT_WITHDRAWN.change(conn, slice=table_of(number))


def has_withdrawn(conn: Connection) -> bool:
    """Return whether any run is withdrawn."""
    [(any_withdrawn,)] = _HAS_WITHDRAWN.run(conn)
    return bool(any_withdrawn)


def forget_withdrawn(conn: Connection) -> int:
    """Forget withdrawn runs that lie nowhere any more; return how many."""
    return _FORGET_WITHDRAWN.change(conn)


def insert_pause(
    conn: Connection, *, tenant: int, queue: str, paused_by: str, note: str
) -> bool:
    """Pause a queue for a tenant; return whether it was not before."""
    rows = _INSERT_PAUSE.run(
        conn, {"tenant": tenant, "queue": queue, "paused_by": paused_by, "note": note}
    )
    return bool(rows)


def delete_pause(conn: Connection, *, tenant: int, queue: str) -> bool:
    """End a queue's pause; return whether there was one."""
    return bool(_DELETE_PAUSE.run(conn, {"tenant": tenant, "queue": queue}))


def list_pauses(
    conn: Connection,
    *,
    tenant: int | None = None,
    queue: str | None = None,
    after: tuple[int, str] = (0, ""),
    limit: int | None = None,
    count: bool = False,
) -> list[PauseRow]:
    """Return paused queues after one, of a tenant or of all."""
    rows = _LIST_PAUSES.run(
        conn,
        {
            "tenant": tenant,
            "queue": queue,
            "after_tenant": after[0],
            "after_queue": after[1],
            "limit": limit,
            "count": count,
        },
    )
    return [
        PauseRow(
            tenant=row[0],
            queue=row[1],
            paused_at=to_millis(row[2]),
            paused_by=row[3],
            note=row[4],
            held=row[5],
        )
        for row in rows
    ]


def purge_passes(conn: Connection, *, before: Millis) -> int:
    """Forget passes older than this that count against nothing; return how many."""
    return _PURGE_PASSES.change(conn, {"before": before})
