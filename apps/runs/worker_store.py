"""The statements of workers and of what the dead leave behind, one function a file."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.runtime import sql
from apps.runtime.sessions import Connection
from chrono.rules.instants import Millis
from chrono.rules.lease import LEASE_TTL
from chrono.rules.states import Reason

_SQL = {
    name: sql.load("runs", name)
    for name in (
        "register_worker",
        "beat_if_alive",
        "stop_worker",
        "look_at_workers",
        "mark_dead_if_stale",
        "mark_dead_if_gone",
        "mark_dead",
        "mark_swept",
        "count_leases",
        "purge_workers",
        "is_queue_served",
        "find_unknown_task",
        "list_orphans",
        "set_aside_if_leased",
        "note_deaths",
        "load_deaths",
        "note_interruptions_if_leased",
        "purge_deaths",
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A lease whose worker is dead or missing."""

    run_id: uuid.UUID
    part: int
    job_id: uuid.UUID
    revision: int
    attempt: int
    token: uuid.UUID
    job_deleted: bool
    retry_policy: dict[str, Any] | None
    crashed: bool = False
    """Whether its process is known to have died."""
    alone: bool = False
    """Whether that process executed nothing else."""
    deaths: int = 0
    """How often a process died under the run before."""
    once: bool = False
    """Whether it was to be begun at most once."""
    transactional: bool = False
    """Whether what it did is undone once its lease is ended by somebody else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look at the workers shows, all of one moment."""

    at: Millis
    """The moment, by the database's clock."""
    up_for: Millis
    """How long the database's server has been up."""
    silent: frozenset[uuid.UUID]
    """Living ones that have not beaten for too long."""
    gone: frozenset[uuid.UUID]
    """Living ones of whose process no session is left."""
    dead: frozenset[uuid.UUID]
    """Dead ones of which something may still come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What a worker is told with a beat."""

    cancelled: list[uuid.UUID]
    """Its runs that are to be stopped."""
    horizon: Millis
    """Up to where timers have buckets."""
    set_aside: bool
    """Whether runs of its queues were set aside and wait."""
    now: float
    """The database's time, in milliseconds."""


def register_worker(
    conn: Connection,
    *,
    worker: uuid.UUID,
    host: str,
    pid: int,
    concurrency: int,
    queues: Sequence[str],
    held: bool = False,
    alone: bool = False,
    tasks: Sequence[str] | None = None,
) -> None:
    """Write the row of a worker process that starts.

    ``held`` says that its sessions hold its identity from now on, ``alone`` that it
    executes one run at a time, of those that were set aside. ``tasks`` are the names of
    those it knows.
    """
    _SQL["register_worker"].change(
        conn,
        {
            "worker": worker,
            "host": host,
            "pid": pid,
            "concurrency": concurrency,
            "queues": list(queues),
            "held": held,
            "alone": alone,
            "tasks": None if tasks is None else list(tasks),
        },
    )


def beat_if_alive(
    conn: Connection, *, worker: uuid.UUID, queues: Sequence[str] = ()
) -> News | None:
    """Renew all leases of a worker; return what there is to tell it of its queues.

    None means that the worker was marked dead: it must stop everything it runs.
    """
    rows = _SQL["beat_if_alive"].run(conn, {"worker": worker, "queues": list(queues)})
    if not rows:
        return None
    [(cancelled, horizon, set_aside, now)] = rows
    return News(cancelled=cancelled, horizon=horizon, set_aside=set_aside, now=now)


def stop_worker(conn: Connection, *, worker: uuid.UUID) -> None:
    """Note that a worker ended by itself; what it still holds is an orphan at once."""
    _SQL["stop_worker"].change(conn, {"worker": worker})


def look_at_workers(conn: Connection, *, quiet: Millis) -> Look:
    """Return what is to be seen of the workers that are not swept.

    Silent is who has not beaten for so long as ``quiet``.
    """
    [(at, up_for, silent, gone, dead)] = _SQL["look_at_workers"].run(
        conn, {"quiet": quiet}
    )
    return Look(
        at=at,
        up_for=up_for,
        silent=frozenset(silent),
        gone=frozenset(gone),
        dead=frozenset(dead),
    )


def mark_dead_if_stale(
    conn: Connection, *, workers: Sequence[uuid.UUID], ttl: Millis
) -> list[uuid.UUID]:
    """Mark these workers dead where still stale under their row lock; return those."""
    rows = _SQL["mark_dead_if_stale"].run(conn, {"workers": list(workers), "ttl": ttl})
    return [w for (w,) in rows]


def mark_dead_if_gone(
    conn: Connection, *, since: Mapping[uuid.UUID, Millis]
) -> list[uuid.UUID]:
    """Mark these workers dead where they still have no session; return those.

    ``since`` says when that was first seen of each, by the database's clock: one that
    has beaten since then lives.
    """
    workers = sorted(since)
    rows = _SQL["mark_dead_if_gone"].run(
        conn, {"workers": workers, "since": [since[w] for w in workers]}
    )
    return [w for (w,) in rows]


def mark_dead(conn: Connection, *, workers: Sequence[uuid.UUID]) -> int:
    """Mark workers dead whose process has ended; return how many were not yet."""
    return _SQL["mark_dead"].change(conn, {"workers": list(workers)})


def mark_swept(conn: Connection, *, workers: Sequence[uuid.UUID]) -> None:
    """Note that nothing comes any more of workers that are dead."""
    _SQL["mark_swept"].change(conn, {"workers": list(workers)})


def count_leases(conn: Connection, *, workers: Sequence[uuid.UUID]) -> tuple[int, int]:
    """Return how many leases these workers hold, and how many there are."""
    [(theirs, of_all)] = _SQL["count_leases"].run(conn, {"workers": list(workers)})
    return int(theirs), int(of_all)


def purge_workers(conn: Connection, *, before: Millis, limit: int) -> int:
    """Delete dead workers that beat last before an instant; return how many."""
    return _SQL["purge_workers"].change(conn, {"before": before, "limit": limit})


def is_queue_served(conn: Connection, *, queue: str) -> bool:
    """Return whether a worker that still beats claims from this queue."""
    [(served,)] = _SQL["is_queue_served"].run(conn, {"queue": queue, "ttl": LEASE_TTL})
    return bool(served)


def find_unknown_task(
    conn: Connection, *, job: uuid.UUID, revision: int, queue: str | None
) -> tuple[str, str] | None:
    """Return a revision's task and queue where no worker of the queue knows the task.

    ``queue`` None is the revision's own. None where a worker that beats knows it, where
    nobody asks for the queue, and for what is no task.
    """
    rows = _SQL["find_unknown_task"].run(
        conn, {"job": job, "revision": revision, "queue": queue, "ttl": LEASE_TTL}
    )
    return rows[0] if rows else None


def list_orphans(conn: Connection, *, limit: int) -> list[Orphan]:
    """Return leases of dead or missing workers, to be settled by token."""
    return [_orphan(row) for row in _SQL["list_orphans"].run(conn, {"limit": limit})]


def set_aside_if_leased(
    conn: Connection, leases: Sequence[tuple[uuid.UUID, uuid.UUID]], *, error: str
) -> set[uuid.UUID]:
    """Set runs aside, given as (run, token); return those whose lease held.

    They wait, their attempt spent, until a process claims them that executes nothing
    else. One that was cancelled is over instead.
    """
    rows = _SQL["set_aside_if_leased"].run(
        conn,
        {
            "runs": [run for run, _ in leases],
            "tokens": [token for _, token in leases],
            "reason": int(Reason.WORKER_LOST),
            "error": error,
        },
    )
    return {run for (run,) in rows}


def note_deaths(conn: Connection, *, runs: Sequence[tuple[int, uuid.UUID]]) -> None:
    """Note that the process of these (part, run) died under them."""
    _SQL["note_deaths"].change(conn, _places(runs))


def load_deaths(
    conn: Connection, *, runs: Sequence[tuple[int, uuid.UUID]]
) -> dict[uuid.UUID, int]:
    """Return how often a process died under these (part, run), where one did."""
    rows = _SQL["load_deaths"].run(conn, _places(runs))
    return {run: int(deaths) for run, deaths in rows}


def note_interruptions_if_leased(
    conn: Connection, leases: Sequence[tuple[uuid.UUID, uuid.UUID]]
) -> dict[uuid.UUID, int]:
    """Count that runs, given as (run, token), are stopped with their worker.

    Returns how often each was by now; those whose lease is lost are left out. The
    others' leases are locked.
    """
    rows = _SQL["note_interruptions_if_leased"].run(
        conn,
        {"runs": [run for run, _ in leases], "tokens": [token for _, token in leases]},
    )
    return {run: int(times) for run, times in rows}


def purge_deaths(conn: Connection, *, before: Millis, limit: int) -> int:
    """Forget deaths before an instant; return how many runs'."""
    return _SQL["purge_deaths"].change(conn, {"before": before, "limit": limit})


def _orphan(row: tuple[Any, ...]) -> Orphan:
    run, part, job, revision, attempt, token, deleted, policy = row[:8]
    crashed, alone, deaths, once, transactional = row[8:]
    return Orphan(
        run_id=run,
        part=part,
        job_id=job,
        revision=revision,
        attempt=attempt,
        token=token,
        job_deleted=bool(deleted),
        retry_policy=policy,
        crashed=crashed,
        alone=alone,
        deaths=deaths,
        once=once,
        transactional=transactional,
    )


def _places(runs: Sequence[tuple[int, uuid.UUID]]) -> dict[str, Any]:
    return {"parts": [part for part, _ in runs], "runs": [run for _, run in runs]}
