"""Django's own session, for rooms whose transactions Django opens."""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, cast

from django.db import (
    DEFAULT_DB_ALIAS,
    connection,  # noqa: TID251 (the door to it)
    connections,  # noqa: TID251 (the door to it)
    transaction,
)
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


_WRITE = re.compile(
    r"\s*(INSERT|UPDATE|DELETE|MERGE|TRUNCATE|COPY|CALL|ALTER|CREATE|DROP"
    r"|WITH\b.*\b(INSERT|UPDATE|DELETE|MERGE))\b",
    re.IGNORECASE | re.DOTALL,
)
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


class WriteElsewhere(RuntimeError):
    """A transactional task wrote to another database, which its transaction does not
    reach."""


def renew() -> None:
    """Have the session looked at before its next use, and replaced if it is old.

    For threads of a worker, where no request does that.
    """
    connection.close_if_unusable_or_obsolete()


@contextmanager
def enclose(*, committed: Callable[[], None] | None = None) -> Iterator[Connection]:
    """Open the outermost transaction for commands that otherwise open their own.

    A command joins it where it asks :func:`is_enclosed`; what it did is on disk only
    when this block has been left without an error. ``committed`` is called after the
    commit, before whatever else waits for it.
    """
    with transaction.atomic(durable=True):
        if committed is not None:
            transaction.on_commit(committed)
        token = _enclosed.set(True)
        try:
            yield raw_connection()
        finally:
            _enclosed.reset(token)


def is_enclosed() -> bool:
    """Tell whether whoever called opened the transaction and will end it."""
    return _enclosed.get()


def is_rolling_back() -> bool:
    """Tell whether the open transaction is to be rolled back at its end."""
    return transaction.get_rollback()


@contextmanager
def refuse_writes_elsewhere() -> Iterator[None]:
    """Have writes to any but the default database raise :class:`WriteElsewhere`."""
    with ExitStack() as stack:
        for alias in connections:
            if alias != DEFAULT_DB_ALIAS:
                stack.enter_context(connections[alias].execute_wrapper(_refuse_write))
        yield


def _refuse_write(
    execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
) -> Any:
    if _WRITE.match(sql):
        alias = context["connection"].alias
        raise WriteElsewhere(
            f"A transactional task wrote to the database {alias}, which its "
            "transaction does not reach. Write there in a task of its own."
        )
    return execute(sql, params, many, context)


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
