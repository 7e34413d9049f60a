"""The day leaves of the ledger and the history: made ahead, dropped when over."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import psycopg

from apps.runs import letter_store, once_store, store, worker_store
from apps.runtime import partitions
from apps.runtime.sessions import Connection
from chrono.rules.buckets import DAY, day_name, day_range_from_name, day_start
from chrono.rules.instants import HOUR, Millis, from_millis
from chrono.rules.keys import day_bounds

AHEAD: Millis = 3 * DAY
BEHIND: Millis = 2 * DAY
"""How far back days are made: a one-shot may lie a day back, an outage lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of day leaves and how long its days are kept after their last write."""

    name: str
    key: str
    by_id: bool
    kept: Millis


OCCURRENCE = Table(
    name="chrono_occurrence", key="scheduled_for", by_id=False, kept=30 * DAY
)
RUN = Table(name="chrono_run", key="id", by_id=True, kept=7 * DAY)
ATTEMPT = Table(name="chrono_attempt", key="run_id", by_id=True, kept=7 * DAY)
TABLES = (OCCURRENCE, RUN, ATTEMPT)
OTHERS_KEPT: Millis = 30 * DAY
DEAD_LETTERS_KEPT: Millis = 90 * DAY
INPUTS_KEPT: Millis = 35 * DAY
WORKERS_KEPT: Millis = 30 * DAY
LEASE_ENDS_KEPT: Millis = HOUR
PURGE = 1_000


def ensure_days(conn: Connection, *, now: Millis) -> int:
    """Make the leaves from two days back, or the newest there is, to three days ahead.

    Returns how many rows had gone to a default leaf and were moved: more than none is
    an alarm. What a person skipped days ahead is none of them. Leaves off, without an
    error, where a lock is not to be had.
    """
    strays = 0
    for table in TABLES:
        have = _days(conn, table)
        start = day_start(now) - BEHIND
        if have:
            start = min(start, max(start - 30 * DAY, max(have) + DAY))
        for day in range(start, day_start(now) + AHEAD + 1, DAY):
            if day in have:
                continue
            lower, upper = _bounds(table, day)
            leaf = day_name(table.name, day)
            try:
                moved = partitions.attach_leaf(
                    conn,
                    parent=table.name,
                    leaf=leaf,
                    key=table.key,
                    lower=lower,
                    upper=upper,
                )
            except psycopg.errors.LockNotAvailable:
                return strays
            if moved and table is OCCURRENCE:
                moved -= store.count_ahead(conn, leaf=leaf)
            strays += moved
    return strays


def ensure_range(conn: Connection, *, start: Millis, end: Millis) -> None:
    """Make the days of runs in [start, end) that are gone; for a backfill of the past.

    A day that a backfill of the last week may write into is not dropped. Raises
    ``LockNotAvailable``.
    """
    _ensure(conn, (RUN, ATTEMPT), range(day_start(start), end, DAY))


def ensure_days_of(conn: Connection, moments: Iterable[Millis]) -> None:
    """Make the days that are gone in which these instants lie; for what runs again.

    A day that somebody had runs of run again is not dropped. Raises
    ``LockNotAvailable``.
    """
    _ensure(conn, TABLES, sorted({day_start(moment) for moment in moments}))


def _ensure(conn: Connection, tables: Iterable[Table], days: Sequence[Millis]) -> None:
    for table in tables:
        have = _days(conn, table)
        for day in days:
            if day in have:
                continue
            lower, upper = _bounds(table, day)
            partitions.attach_leaf(
                conn,
                parent=table.name,
                leaf=day_name(table.name, day),
                key=table.key,
                lower=lower,
                upper=upper,
            )


def drop_old_days(conn: Connection, *, now: Millis) -> list[str]:
    """Drop days that are over; keep the few runs that were no success for longer.

    A run's day is over when its last write is seven days old, whatever its date.
    """
    dropped: list[str] = []
    for table in TABLES:
        for day, leaf in sorted(_days(conn, table).items()):
            if day + DAY > now - table.kept or not _is_over(
                conn, table, leaf, day, now
            ):
                continue
            try:
                with conn.transaction():
                    # A run of that day may end even now: writers wait from here on.
                    partitions.lock_against_writes(conn, table=leaf)
                    if not _is_over(conn, table, leaf, day, now):
                        continue
                    if table is RUN:
                        store.keep_runs(conn, leaf=leaf)
                    if table is ATTEMPT:
                        store.keep_attempts(conn, leaf=leaf)
                    partitions.drop_table(conn, table=leaf)
            except psycopg.errors.LockNotAvailable:
                continue
            dropped.append(leaf)
    return dropped


def purge_kept(conn: Connection, *, now: Millis) -> int:
    """Delete what is kept past its retention; return how many rows.

    A bounded number a call; call again while it returns more than none.
    """
    return (
        store.purge_runs_kept(conn, before=now - OTHERS_KEPT, limit=PURGE)
        + store.purge_attempts_kept(conn, before=now - OTHERS_KEPT, limit=PURGE)
        + once_store.purge_once(conn, before=now, limit=PURGE)
        + store.purge_dead_letters(conn, before=now - DEAD_LETTERS_KEPT, limit=PURGE)
        + letter_store.purge_reruns(conn, before=now - DEAD_LETTERS_KEPT, limit=PURGE)
        + store.purge_resolutions(
            conn,
            below=day_bounds(now - OTHERS_KEPT)[0],
            before=now - OTHERS_KEPT,
            limit=PURGE,
        )
        + store.purge_run_inputs(
            conn,
            before=day_bounds(now - INPUTS_KEPT)[0],
            since=now - INPUTS_KEPT,
            limit=PURGE,
        )
        + worker_store.purge_workers(conn, before=now - WORKERS_KEPT, limit=PURGE)
        + worker_store.purge_deaths(conn, before=now - WORKERS_KEPT, limit=PURGE)
        + store.purge_progress(
            conn,
            before=day_bounds(now - INPUTS_KEPT)[0],
            noted_before=now - INPUTS_KEPT,
            limit=PURGE,
        )
        + store.purge_lease_ends(conn, before=now - LEASE_ENDS_KEPT)
    )


def _is_over(
    conn: Connection, table: Table, leaf: str, day: Millis, now: Millis
) -> bool:
    low, high = day_bounds(day)
    if letter_store.has_reruns(conn, low=low, high=high, since=now - table.kept):
        return False
    if not table.by_id:
        return True
    written = store.read_last_write(conn, leaf=leaf)
    if written is not None and written >= now - table.kept:
        return False
    return not store.has_backfill(
        conn, start=day, end=day + DAY, since=now - table.kept
    )


def _days(conn: Connection, table: Table) -> dict[Millis, str]:
    return {
        day_range_from_name(leaf.name)[1]: leaf.name
        for leaf in partitions.list_leaves(conn, parent=table.name)
        if not leaf.name.endswith("_default")
    }


def _bounds(table: Table, day: Millis) -> tuple[str, str]:
    if table.by_id:
        lower, upper = day_bounds(day)
        return str(lower), str(upper)
    return from_millis(day).isoformat(), from_millis(day + DAY).isoformat()
