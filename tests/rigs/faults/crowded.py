"""The server's queue of notices, filled to its end."""

import os
from types import TracebackType
from typing import Self

import psycopg

from dev import postgres

LEAST_PAGES = 64
BOUNDED_SINCE = 17
MOST = 2_000
CHANNEL = "rig_crowd"
LONG = 7_900


def lacks() -> str:
    """Return why the queue cannot be filled here."""
    version = int(os.environ.get("PG") or postgres.EMBEDDED)
    if version < BOUNDED_SINCE:
        return f"PostgreSQL {version} has no bound that a test could reach"
    return ""


def settings() -> dict[str, postgres.Setting]:
    """Return what a server needs so that its queue can be filled."""
    return {} if lacks() else {"max_notify_queue_pages": LEAST_PAGES}


class Queue:
    """A full queue: somebody listens and never reads. A context manager."""

    def __init__(self, url: str) -> None:
        self._listener = psycopg.connect(url)
        self._crier = psycopg.connect(url, autocommit=True)

    def __enter__(self) -> Self:
        self._listener.execute(f"LISTEN {CHANNEL}")
        self._listener.commit()
        # Within a transaction nothing is taken out of the queue.
        self._listener.execute("SELECT 1")
        for number in range(MOST):
            try:
                self._crier.execute(
                    "SELECT pg_notify(%s, %s)", [CHANNEL, f"{number}".ljust(LONG)]
                )
            except psycopg.OperationalError:
                return self
        raise RuntimeError("the queue of notices takes all that there is")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        self._crier.close()
