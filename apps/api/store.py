"""The statements of this room, one function a file: they look, and write nothing."""

import uuid
from dataclasses import dataclass

from apps.runtime import sql
from apps.runtime.sessions import Connection
from chrono.rules.instants import Millis

_SQL = {
    name: sql.load("api", name)
    for name in (
        "read_recovery",
        "list_oldest_ready",
        "list_workers_alive",
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAlive:
    """A worker that is there."""

    id: uuid.UUID
    queues: tuple[str, ...]
    concurrency: int
    beat_age: Millis


def read_recovery(conn: Connection) -> bool:
    """Return whether the server follows another and takes no writes."""
    [(follows,)] = _SQL["read_recovery"].run(conn)
    return bool(follows)


def list_oldest_ready(conn: Connection) -> dict[str, Millis]:
    """Return for each queue that has any how long its first ready run has waited."""
    return {queue: int(age) for queue, age in _SQL["list_oldest_ready"].run(conn)}


def list_workers_alive(conn: Connection) -> list[WorkerAlive]:
    """Return the workers that are there, the latest beat first."""
    return [
        WorkerAlive(
            id=worker, queues=tuple(queues), concurrency=concurrency, beat_age=int(age)
        )
        for worker, queues, concurrency, age in _SQL["list_workers_alive"].run(conn)
    ]
