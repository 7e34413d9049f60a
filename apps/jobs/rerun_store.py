"""The statements that run a finished run's occurrence again."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from apps.runtime import sql
from apps.runtime.sessions import Connection
from chrono.rules.instants import Millis

_SQL = {
    name: sql.load("jobs", name)
    for name in (
        "next_groups",
        "find_taken_runs",
        "insert_rerun",
        "insert_redriven",
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRerun:
    """A run that runs a dead letter's occurrence again, in the catch-up lane."""

    run: UUID
    """The one that died."""
    rerun: UUID
    part: int
    job: UUID
    tenant: int
    version: int
    revision: int
    group: int
    scheduled_for: Millis
    due_at: Millis
    queue: str
    key: str | None = None
    """The concurrency key that its payload fills; None where it fills none."""


def next_groups(
    conn: Connection, *, instants: Sequence[tuple[int, UUID, Millis]]
) -> list[int]:
    """Return the highest attempt group that the ledger has of each instant.

    Instants are (partition, job, scheduled_for); 0 where it has none.
    """
    rows = _SQL["next_groups"].run(
        conn,
        {
            "parts": [part for part, _, _ in instants],
            "jobs": [job for _, job, _ in instants],
            "scheduled_for": [moment for _, _, moment in instants],
        },
    )
    return [int(group) for (group,) in rows]


def find_taken_runs(conn: Connection, *, runs: Sequence[tuple[int, UUID]]) -> set[UUID]:
    """Return those of these (partition, run id) that a run has or had."""
    rows = _SQL["find_taken_runs"].run(
        conn,
        {
            "parts": sorted({part for part, _ in runs}),
            "runs": [run for _, run in runs],
        },
    )
    return {run for (run,) in rows}


def insert_rerun(
    conn: Connection, *, run: UUID, part: int, rerun: UUID, by: str
) -> None:
    """Link a run to the one that runs it again, and close its dead letter if any."""
    _SQL["insert_rerun"].change(
        conn, {"run": run, "part": part, "rerun": rerun, "by": by}
    )


def insert_redriven(
    conn: Connection,
    *,
    redrive: UUID,
    reruns: Sequence[NewRerun],
    own_queue: bool,
    own_payload: bool,
    payload: str | None,
    by: str,
    now: Millis,
) -> None:
    """Write runs that run dead letters again; the rows of their jobs are locked.

    ``payload`` is JSON, for all of them where ``own_payload``; else each keeps that of
    its letter. ``own_queue`` says that the queues were given.
    """
    _SQL["insert_redriven"].change(
        conn,
        {
            "redrive": redrive,
            "runs": [one.run for one in reruns],
            "reruns": [one.rerun for one in reruns],
            "parts": [one.part for one in reruns],
            "jobs": [one.job for one in reruns],
            "tenants": [one.tenant for one in reruns],
            "versions": [one.version for one in reruns],
            "revisions": [one.revision for one in reruns],
            "groups": [one.group for one in reruns],
            "scheduled_for": [one.scheduled_for for one in reruns],
            "due_at": [one.due_at for one in reruns],
            "queues": [one.queue for one in reruns],
            "keys": [one.key for one in reruns],
            "own_queue": own_queue,
            "own_payload": own_payload,
            "payload": payload,
            "by": by,
            "now": now,
        },
    )
