"""The hourly buckets of chrono_timer: made ahead, filled from far, dropped empty."""

import contextlib

import psycopg

from apps.runtime import partitions
from apps.runtime.sessions import Connection
from apps.timers import store
from chrono.rules.buckets import (
    HOUR,
    bucket_name,
    bucket_range_from_name,
    bucket_start,
)
from chrono.rules.instants import Millis, from_millis

PARENT = "chrono_timer"
AHEAD: Millis = 26 * HOUR
KEPT: Millis = 2 * HOUR
MOVE = 2_000
MOVES_A_STEP = 20
BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled)
"""Somebody reads what would be dropped: next time."""


def ensure_buckets(conn: Connection, *, now: Millis) -> Millis:
    """Make the buckets of the next 26 hours, publish each; return the horizon.

    Stops early, without an error, where a lock is not to be had: the next call goes on.
    """
    horizon = store.read_dispatch_state(conn).horizon
    # After a long stop the hours in between are over: nothing is due in them, since
    # whatever is planned late is due in the current hour at least.
    start = max(horizon, bucket_start(now) - HOUR)
    while start < now + AHEAD:
        try:
            partitions.attach_leaf(
                conn,
                parent=PARENT,
                leaf=bucket_name(start),
                key="due_at",
                lower=from_millis(start).isoformat(),
                upper=from_millis(start + HOUR).isoformat(),
                storage=partitions.HOT_STORAGE,
            )
        except psycopg.errors.LockNotAvailable:
            break
        start += HOUR
        store.publish_horizon(conn, horizon=start)
        horizon = start
    return horizon


def move_far(conn: Connection, *, now: Millis, horizon: Millis) -> int:
    """Move far timers that have a bucket by now; return how many.

    Repeats itself with every call, since a writer with a stale horizon may have left
    one behind. Rows overdue since before the first bucket stay: load reads far too.
    """
    moved = 0
    for _ in range(MOVES_A_STEP):
        batch = store.move_far_timers(
            conn, first=bucket_start(now), horizon=horizon, limit=MOVE
        )
        moved += batch
        if batch < MOVE:
            break
    return moved


def drop_old_buckets(conn: Connection, *, now: Millis) -> list[str]:
    """Drop buckets whose hour ended two hours ago and which are empty; return them.

    Rows in an old bucket are overdue timers: it stays until they are fired.
    """
    for leaf in partitions.list_leaves(conn, parent=PARENT):
        _, end = bucket_range_from_name(leaf.name)
        if end > now - KEPT:
            continue
        if not leaf.detaching and not partitions.is_empty(conn, table=leaf.name):
            continue
        with contextlib.suppress(*BUSY):
            partitions.detach_leaf(conn, parent=PARENT, leaf=leaf)
    return _drop_detached(conn)


def _drop_detached(conn: Connection) -> list[str]:
    # Asked of the server, not remembered: a keeper may have died between the two.
    dropped: list[str] = []
    for bucket in store.list_detached(conn):
        with contextlib.suppress(*BUSY):
            with conn.transaction():
                # A row came in between the look and the detach: load reads far.
                store.move_to_far(conn, bucket=bucket)
                partitions.drop_table(conn, table=bucket)
            dropped.append(bucket)
    return dropped
