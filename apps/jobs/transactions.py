"""The transaction of a change: its limits, what it touches, and the hint after it."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import psycopg
from django.db import transaction

from apps.jobs import store
from apps.jobs.errors import JobsBusy, KeyTaken
from apps.runtime.django_session import is_enclosed, raw_connection
from apps.runtime.sessions import Connection

log = logging.getLogger("chrono.jobs")

KEYS = "chrono_job_key"


@dataclass(slots=True, kw_only=True)
class Open:
    """An open transaction that changes jobs."""

    conn: Connection
    parts: set[int] = field(default_factory=set)
    """The partitions whose leaders hear of it after the commit."""


@contextmanager
def open_change(session: Connection | None = None) -> Iterator[Open]:
    """Open a transaction with its limits set, on Django's session or the one given.

    On Django's it is the outermost one, or joins what :func:`enclose` opened; a session
    given is an autocommit one. Whoever leads what it touched is told after the commit;
    a hint that is lost costs half a second. Raises JobsBusy at the limits, KeyTaken.
    """
    try:
        if session is None:
            with transaction.atomic(durable=not is_enclosed()):
                opened = Open(conn=raw_connection())
                store.set_limits(opened.conn)
                yield opened
                transaction.on_commit(partial(_hint, opened), robust=True)
        else:
            opened = Open(conn=session)
            with session.transaction():
                store.set_limits(session)
                yield opened
            _hint(opened)
    except psycopg.errors.UniqueViolation as error:
        if error.diag.constraint_name != KEYS:
            raise
        raise KeyTaken(field="key") from error
    except (
        psycopg.errors.LockNotAvailable,
        psycopg.errors.DeadlockDetected,
        psycopg.errors.QueryCanceled,
        psycopg.errors.IdleInTransactionSessionTimeout,
    ) as error:
        raise JobsBusy from error


def _hint(opened: Open) -> None:
    if not opened.parts:
        return
    try:
        _notify(opened.conn, sorted(opened.parts))
    except Exception:
        # What is done is done, and the next look finds it.
        log.warning("a hint was not sent", exc_info=True)


def _notify(conn: Connection, parts: Sequence[int]) -> None:
    store.notify_leaders(conn, partitions=parts)
