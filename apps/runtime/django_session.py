"""Django's own session, for rooms whose transactions Django opens."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from django.db import connection, transaction  # noqa: TID251 (the door to it)
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.migrations.executor import MigrationExecutor

from apps.runtime.sessions import Connection, PooledSession, refuse_pooler

log = logging.getLogger("chrono.web")

WEB = {
    "statement_timeout": "5000",
    "idle_in_transaction_session_timeout": "2000",
    "lock_timeout": "2000",
}


_enclosed: ContextVar[bool] = ContextVar("enclosed", default=False)


def raw_connection() -> Connection:
    """Return the psycopg connection under Django's default one, connected.

    Inside ``transaction.atomic`` its statements belong to that transaction.
    """
    # Django looks after a session that it keeps between requests only in its own
    # cursors, which nobody opens here.
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    return cast(Connection, connection.connection)


@contextmanager
def enclose() -> Iterator[Connection]:
    """Open the outermost transaction for commands that otherwise open their own.

    A command joins it where it asks :func:`is_enclosed`; what it did is on disk only
    when this block has been left without an error.
    """
    with transaction.atomic(durable=True):
        token = _enclosed.set(True)
        try:
            yield raw_connection()
        finally:
            _enclosed.reset(token)


def is_enclosed() -> bool:
    """Tell whether whoever called opened the transaction and will end it."""
    return _enclosed.get()


def limit_sessions() -> None:
    """Bound what one request can cost the database, on every session from now on.

    For a process of the web alone. Behind a pooler a setting would stay with whoever
    gets the server's session next, so there the role has to bring the limits.
    """
    connection_created.connect(_limit, dispatch_uid="chrono.limit_sessions")


def unapplied_migrations() -> list[str]:
    """Return the migrations that this code has and the database has not."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [str(migration) for migration, _ in plan]


def _limit(*, connection: BaseDatabaseWrapper, **_: Any) -> None:
    session = cast(Connection, connection.connection)
    try:
        refuse_pooler(session)
    except PooledSession:
        limits = ", ".join(f"{name} = {value}" for name, value in WEB.items())
        log.warning("behind a pooler: ALTER ROLE … SET %s", limits)
        return
    session.execute(
        "SELECT " + ", ".join(["set_config(%s, %s, false)"] * len(WEB)),
        [part for pair in WEB.items() for part in pair],
    )
