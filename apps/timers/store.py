"""The statements of this room, one function a file."""

from dataclasses import dataclass

from apps.runtime import sql
from apps.runtime.locks import MEMBER_LOCKS, PARTITION_LOCKS
from apps.runtime.sessions import Connection
from chrono.rules.instants import Millis, to_millis

_READ_DISPATCH_STATE = sql.load("timers", "read_dispatch_state")
_PUBLISH_HORIZON = sql.load("timers", "publish_horizon")
_RAISE_GATES = sql.load("timers", "raise_gates")
_MOVE_FAR_TIMERS = sql.load("timers", "move_far_timers")
_LIST_DETACHED = sql.load("timers", "list_detached")
_MOVE_TO_FAR = sql.load("timers", "move_to_far")
_READ_LEADERS = sql.load("timers", "read_leaders")
_READ_OLDEST_DUE = sql.load("timers", "read_oldest_due")

NEAR = "chrono_timer"
FAR = "chrono_timer_far"
TIMERS = (NEAR, FAR)
"""Where a timer lies: below the horizon, and beyond it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchState:
    """What upkeep published: where ready rows go, and up to when hours have buckets."""

    slice: int
    horizon: Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaders:
    """How many schedulers there are, and how many partitions they hold together."""

    schedulers: int
    partitions: int


def read_dispatch_state(conn: Connection) -> DispatchState:
    """Return the current slice and horizon; older values than these are harmless."""
    [(current, horizon)] = _READ_DISPATCH_STATE.run(conn)
    return DispatchState(slice=current, horizon=to_millis(horizon))


def publish_horizon(conn: Connection, *, horizon: Millis) -> None:
    """Publish a horizon; call it once every hour before it has its bucket."""
    _PUBLISH_HORIZON.change(conn, {"horizon": horizon})


def raise_gates(conn: Connection) -> None:
    """Have who fires and who claims look at the gates anew, once this is committed."""
    _RAISE_GATES.change(conn)


def move_far_timers(
    conn: Connection, *, first: Millis, horizon: Millis, limit: int
) -> int:
    """Move far timers due in [first, horizon) into their buckets; return how many."""
    return _MOVE_FAR_TIMERS.change(
        conn, {"first": first, "horizon": horizon, "limit": limit}
    )


def list_detached(conn: Connection) -> list[str]:
    """Return the buckets that are no part of ``chrono_timer`` any more."""
    return [name for (name,) in _LIST_DETACHED.run(conn)]


def move_to_far(conn: Connection, *, bucket: str) -> int:
    """Move all rows of a detached bucket to the far table; return how many."""
    return _MOVE_TO_FAR.change(conn, bucket=bucket)


def read_leaders(conn: Connection) -> Leaders:
    """Return who schedules right now."""
    [(schedulers, partitions)] = _READ_LEADERS.run(
        conn, {"members": MEMBER_LOCKS, "partitions": PARTITION_LOCKS}
    )
    return Leaders(schedulers=schedulers, partitions=partitions)


def read_oldest_due(conn: Connection) -> Millis:
    """Return how long the timer that waits longest is past its time; 0 for none."""
    [(late,)] = _READ_OLDEST_DUE.run(conn)
    return int(late)
