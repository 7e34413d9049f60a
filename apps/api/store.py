"""The statements of this room, one function a file: they look, and write nothing."""

import uuid
from dataclasses import dataclass

from apps.runtime import sql
from apps.runtime.locks import MEMBER_LOCKS, PARTITION_LOCKS
from apps.runtime.sessions import Connection
from chrono.rules.instants import Millis

_SQL = {
    name: sql.load("api", name)
    for name in (
        "read_recovery",
        "read_leaders",
        "read_oldest_due",
        "list_oldest_ready",
        "list_workers_alive",
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaders:
    """How many schedulers there are, and how many partitions they hold together."""

    schedulers: int
    partitions: int


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


def read_leaders(conn: Connection) -> Leaders:
    """Return who schedules right now."""
    [(schedulers, partitions)] = _SQL["read_leaders"].run(
        conn, {"members": MEMBER_LOCKS, "partitions": PARTITION_LOCKS}
    )
    return Leaders(schedulers=schedulers, partitions=partitions)


def read_oldest_due(conn: Connection) -> Millis:
    """Return how long the timer that waits longest is past its time; 0 for none."""
    [(late,)] = _SQL["read_oldest_due"].run(conn)
    return int(late)


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
