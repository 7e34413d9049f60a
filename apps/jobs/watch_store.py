"""The statements by which jobs are watched; rows in, frozen values out."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from apps.runtime import sql
from apps.runtime.sessions import Connection
from chrono.rules.instants import Millis
from chrono.rules.keys import scheduled_for_of

_SQL = {
    name: sql.load("jobs", name)
    for name in (
        "list_died",
        "list_ended",
        "load_last_errors",
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """A job that is to be paused after so many deaths, and of which runs died."""

    job_id: UUID
    part: int
    changes: int
    runs: frozenset[UUID]
    """Those that died."""
    since: Millis
    """When it was changed last; earlier deaths don't count."""
    bound: Any
    """Its pause_on_failure as it is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """Deaths from an instant on, in order."""

    seen: int
    until: Millis | None
    """The instant of the last one seen."""
    jobs: list[Failing]


@dataclass(frozen=True, slots=True, kw_only=True)
class FiredRun:
    """A run that was fired, and how it ended, if it did."""

    job_id: UUID
    run_id: UUID
    state: int | None
    finished_at: Millis | None


def list_died(conn: Connection, *, since: Millis, limit: int) -> Died:
    """Return up to ``limit`` deaths from an instant on, by the jobs to be judged."""
    rows = _SQL["list_died"].run(conn, {"since": since, "limit": limit})
    return Died(
        seen=rows[0][0],
        until=rows[0][1],
        jobs=[
            Failing(
                job_id=job,
                part=part,
                changes=changes,
                runs=frozenset(runs),
                since=changed,
                bound=json.loads(bound),
            )
            for _, _, job, part, changes, runs, changed, bound in rows
            if job is not None
        ],
    )


def list_ended(
    conn: Connection, *, jobs: Sequence[tuple[Failing, int]]
) -> list[FiredRun]:
    """Return the runs of these jobs that were fired last: so many of each.

    And as many up to the last one that died.
    """
    rows = _SQL["list_ended"].run(
        conn,
        {
            "parts": [job.part for job, _ in jobs],
            "jobs": [job.job_id for job, _ in jobs],
            "counts": [count for _, count in jobs],
            "instants": [scheduled_for_of(max(job.runs)) for job, _ in jobs],
        },
    )
    return [
        FiredRun(job_id=job, run_id=run, state=state, finished_at=finished_at)
        for job, run, state, finished_at in rows
    ]


def load_last_errors(
    conn: Connection, *, runs: Sequence[UUID]
) -> dict[UUID, tuple[int, str | None]]:
    """Return the reason and the last error of those of these runs that died."""
    rows = _SQL["load_last_errors"].run(conn, {"runs": list(runs)})
    return {run: (reason, error) for run, reason, error in rows}
