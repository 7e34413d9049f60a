"""The statements of dead letters, and of which run runs which one again."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from apps.runtime import sql
from apps.runtime.sessions import Connection
from chrono.rules.instants import Millis, to_millis, to_millis_if_any

_SQL = {
    name: sql.load("runs", name)
    for name in (
        "list_dead_letters",
        "load_dead_letters",
        "get_dead_letter",
        "load_letter_payloads",
        "lock_dead_letters",
        "discard_if_open",
        "note_dead_letter",
        "find_reruns",
        "has_reruns",
        "purge_reruns",
    )
}
RERUN = 1
DISCARDED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead letter as a list shows it."""

    run_id: UUID
    part: int
    tenant: int
    job_id: UUID
    job_key: str
    job_deleted: bool
    revision: int
    queue: str
    reason: int
    attempt: int
    died_at: Millis
    error: str
    """How the error of the last attempt begins."""
    closed: int | None
    """None while nothing was done about it, RERUN or DISCARDED."""
    closed_at: Millis | None
    closed_by: str | None
    note: str | None
    noted_at: Millis | None
    noted_by: str | None
    rerun_id: UUID | None
    """The run that ran it again."""
    resolved: int | None
    """What a person said became of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Letters of one look, and how far it went."""

    letters: list[Letter]
    last: UUID | None
    """The run of the last one looked at; None where there were no more to look at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reruns:
    """How a run is linked to others of its occurrence."""

    rerun_as: UUID | None
    """The run that ran it again."""
    rerun_of: UUID | None
    """The run that it runs again."""


def list_dead_letters(
    conn: Connection,
    *,
    tenant: int,
    before: UUID,
    look: int,
    limit: int,
    open_only: bool,
    living: bool,
    closed: int | None,
    resolved: bool,
    job: UUID | None,
    reason: int | None,
    queue: str | None,
    tag: str | None,
    target: str | None,
    since: Millis | None,
    until: Millis | None,
) -> Look:
    """Return letters with run ids below one, the highest first, of ``look`` at most.

    ``living`` leaves those of deleted jobs out; ``target`` is a task's name, or how a
    url begins; ``since`` and ``until`` are about when they died.
    """
    rows = _SQL["list_dead_letters"].run(
        conn,
        {
            "tenant": tenant,
            "before": before,
            "look": look,
            "limit": limit,
            "open": open_only,
            "living": living,
            "closed": closed,
            "resolved": resolved,
            "job": job,
            "reason": reason,
            "queue": queue,
            "tag": tag,
            "target": target,
            "since": since,
            "until": until,
        },
    )
    letters = [_letter(row[1:]) for row in rows if row[1] is not None]
    return Look(letters=letters, last=rows[0][0])


def load_dead_letters(
    conn: Connection, *, runs: Sequence[UUID], tenant: int | None
) -> dict[UUID, Letter]:
    """Return those letters of these runs that there are; None stands for any tenant."""
    rows = _SQL["load_dead_letters"].run(conn, {"runs": list(runs), "tenant": tenant})
    return {row[0]: _letter(row) for row in rows}


def load_letter_payloads(conn: Connection, *, runs: Sequence[UUID]) -> dict[UUID, Any]:
    """Return the payloads of the letters of these runs, each as large as one may be."""
    return {
        run: None if payload is None else json.loads(payload)
        for run, payload in _SQL["load_letter_payloads"].run(conn, {"runs": list(runs)})
    }


def get_dead_letter(
    conn: Connection, *, run: UUID, part: int
) -> tuple[Any, list[Any]] | None:
    """Return a letter's payload and its errors, first to last; None for no letter."""
    for payload, errors in _SQL["get_dead_letter"].run(
        conn, {"run": run, "part": part}
    ):
        return None if payload is None else json.loads(payload), json.loads(errors)
    return None


def lock_dead_letters(
    conn: Connection, *, runs: Sequence[UUID], tenant: int | None
) -> None:
    """Lock these letters, in the order of their ids, until the transaction ends."""
    _SQL["lock_dead_letters"].run(conn, {"runs": list(runs), "tenant": tenant})


def discard_if_open(
    conn: Connection, *, runs: Sequence[UUID], tenant: int | None, by: str, note: str
) -> set[UUID]:
    """Close letters that nothing is to be done about; return those it closed."""
    rows = _SQL["discard_if_open"].run(
        conn, {"runs": list(runs), "tenant": tenant, "by": by, "note": note}
    )
    return {run for (run,) in rows}


def note_dead_letter(
    conn: Connection, *, run: UUID, part: int, by: str, note: str | None
) -> bool:
    """Put a note on a letter, None for no note; return whether there is one."""
    return bool(
        _SQL["note_dead_letter"].run(
            conn, {"run": run, "part": part, "by": by, "note": note}
        )
    )


def find_reruns(conn: Connection, *, run: UUID, part: int) -> Reruns:
    """Return to which runs of its occurrence a run is linked."""
    [(rerun_as, rerun_of)] = _SQL["find_reruns"].run(conn, {"run": run, "part": part})
    return Reruns(rerun_as=rerun_as, rerun_of=rerun_of)


def has_reruns(conn: Connection, *, low: UUID, high: UUID, since: Millis) -> bool:
    """Return whether runs with ids in [low, high) were made since, out of others."""
    [(there,)] = _SQL["has_reruns"].run(
        conn, {"low": low, "high": high, "since": since}
    )
    return bool(there)


def purge_reruns(conn: Connection, *, before: Millis, limit: int) -> int:
    """Delete links that were made before an instant; return how many."""
    return _SQL["purge_reruns"].change(conn, {"before": before, "limit": limit})


def _letter(row: tuple[Any, ...]) -> Letter:
    run, part, tenant, job, key, deleted, revision, queue, reason = row[:9]
    attempt, died, error, closed, closed_at, closed_by = row[9:15]
    note, noted_at, noted_by, rerun, resolved = row[15:20]
    return Letter(
        run_id=run,
        part=part,
        tenant=tenant,
        job_id=job,
        job_key=key,
        job_deleted=bool(deleted),
        revision=revision,
        queue=queue,
        reason=reason,
        attempt=attempt,
        died_at=to_millis(died),
        error=error or "",
        closed=closed,
        closed_at=to_millis_if_any(closed_at),
        closed_by=closed_by,
        note=note,
        noted_at=to_millis_if_any(noted_at),
        noted_by=noted_by,
        rerun_id=rerun,
        resolved=resolved,
    )
