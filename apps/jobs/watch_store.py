"""The statements by which jobs are watched; rows in, frozen values out."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from apps.runtime import sql
from apps.runtime.sessions import Connection
from chrono.rules.instants import Millis
from chrono.rules.keys import run_id, scheduled_for_of
from chrono.rules.watch import NO_RUN, Breach, Change, WatchKind

_SQL = {
    name: sql.load("jobs", name)
    for name in (
        "list_died",
        "list_ended",
        "load_last_errors",
        "prefer_indexes",
        "watch_anything",
        "watch_ready",
        "watch_blocked",
        "watch_timers",
        "watch_overdue",
        "watch_leases",
        "watch_breaches",
        "watch_jobs",
        "find_successes",
        "save_watched",
        "change_breaches",
        "list_events",
        "list_breaches",
        "count_breaches",
        "purge_events",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A run that may be late or take too long, and its job's bound as it is stored."""

    run_id: UUID
    job_id: UUID
    tenant: int
    part: int
    bound: str
    """JSON."""
    due_at: Millis = 0
    jitter_window: Millis = 0
    attempt: int = 1
    started_at: Millis = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch[Key]:
    """Suspects among some rows, and after which row the next look goes on."""

    suspects: list[Suspect]
    next: Key | None
    """None at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBreach:
    """An open breach beside what tells whether it is over."""

    breach: Breach
    tenant: int
    part: int
    since: Millis
    stopped: bool
    """Whether its job is paused or deleted."""
    bound: str | None
    """The job's bound as JSON, None where it has none any more."""
    started_at: Millis | None
    """When the present attempt was begun."""
    begun: bool
    """Whether the run is over, waits for another attempt, or was skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedJob:
    """A job that must succeed now and then."""

    job_id: UUID
    tenant: int
    part: int
    since: Millis
    """When it was made, restored, resumed, or last planned anew."""
    succeeded_at: Millis | None
    """The last success that is known."""
    looked_at: Millis | None
    """When successes were looked for."""
    open_since: Millis | None
    """Since when it is told to have no success."""
    bound: str
    """JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """Of which job a success is looked for, how late, and in how many decisions."""

    job_id: UUID
    part: int
    after: Millis
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A change of a breach, with what an event says of it."""

    breach: Breach
    change: Change
    tenant: int
    part: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """Something that was noticed of a job, or that it is over."""

    id: int
    at: Millis
    kind: WatchKind
    over: bool
    run_id: UUID | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """What is wrong with a job now."""

    kind: WatchKind
    run_id: UUID | None
    since: Millis
    detail: str


type ReadyKey = tuple[str, int, int]
type RunKey = tuple[UUID, int]
type BreachKey = tuple[UUID, int, UUID]
type JobKey = tuple[UUID, int]

FIRST_READY: ReadyKey = ("", -1, -1)
FIRST_RUN: RunKey = (UUID(int=0), -1)
FIRST_BREACH: BreachKey = (UUID(int=0), -1, UUID(int=0))
FIRST_JOB: JobKey = (UUID(int=0), -1)
_CHANGES = {Change.BEGINS: 1, Change.ENDS: 2, Change.LAPSES: 3}


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


def prefer_indexes(conn: Connection) -> None:
    """Have the open transaction go by indexes, whatever statistics say."""
    _SQL["prefer_indexes"].run(conn)


def watch_anything(conn: Connection, *, before: Millis) -> bool:
    """Return whether there is anything to look at at all.

    Occurrences that are not decided count where they were due before that instant.
    """
    [(anything,)] = _SQL["watch_anything"].run(conn, {"before": before})
    return bool(anything)


def watch_ready(
    conn: Connection, *, after: ReadyKey, now: Millis, limit: int
) -> Stretch[ReadyKey]:
    """Look at ready rows from one on, by (queue, priority, tag)."""
    queue, priority, tag = after
    rows = _SQL["watch_ready"].run(
        conn,
        {"queue": queue, "priority": priority, "tag": tag, "now": now, "limit": limit},
    )
    return Stretch(
        suspects=[_late(row[4:]) for row in rows if row[4] is not None],
        next=rows[0][1:4] if rows and rows[0][0] == limit else None,
    )


def watch_blocked(
    conn: Connection, *, after: RunKey, now: Millis, limit: int
) -> Stretch[RunKey]:
    """Look at runs behind a gate from one on, by (run, part)."""
    run, part = after
    rows = _SQL["watch_blocked"].run(
        conn, {"run": run, "part": part, "now": now, "limit": limit}
    )
    return Stretch(
        suspects=[_late(row[3:]) for row in rows if row[3] is not None],
        next=rows[0][1:3] if rows and rows[0][0] == limit else None,
    )


def watch_timers(
    conn: Connection, *, after: RunKey, now: Millis, limit: int
) -> Stretch[RunKey]:
    """Look at runs that wait in a timer from one on, by (part, run)."""
    run, part = after
    rows = _SQL["watch_timers"].run(
        conn, {"run": run, "part": part, "now": now, "limit": limit}
    )
    return Stretch(
        suspects=[_late(row[3:]) for row in rows if row[3] is not None],
        next=(rows[0][2], rows[0][1]) if rows and rows[0][0] == limit else None,
    )


def watch_overdue(conn: Connection, *, before: Millis, limit: int) -> list[Suspect]:
    """Return occurrences due before an instant and not decided: the first of each part.

    ``limit`` is for one partition.
    """
    rows = _SQL["watch_overdue"].run(conn, {"before": before, "limit": limit})
    return [
        Suspect(
            run_id=run_id(job, scheduled_for, 0, part),
            job_id=job,
            tenant=tenant,
            part=part,
            due_at=scheduled_for,
            bound=bound,
            jitter_window=window,
        )
        for job, tenant, part, scheduled_for, bound, window in rows
    ]


def watch_leases(
    conn: Connection, *, after: RunKey, now: Millis, limit: int
) -> Stretch[RunKey]:
    """Look at runs in execution from one on, by (run, part)."""
    run, part = after
    rows = _SQL["watch_leases"].run(
        conn, {"run": run, "part": part, "now": now, "limit": limit}
    )
    return Stretch(
        suspects=[_long(row[3:]) for row in rows if row[3] is not None],
        next=rows[0][1:3] if rows and rows[0][0] == limit else None,
    )


def watch_breaches(
    conn: Connection, *, after: BreachKey, limit: int
) -> list[OpenBreach]:
    """Return open breaches from one on, by (job, kind, run)."""
    job, kind, run = after
    rows = _SQL["watch_breaches"].run(
        conn, {"job": job, "kind": kind, "run": run, "limit": limit}
    )
    return [
        OpenBreach(
            breach=Breach(kind=WatchKind(kind), job_id=job, run_id=run),
            tenant=tenant,
            part=part,
            since=since,
            stopped=stopped,
            bound=bound,
            started_at=started_at,
            begun=begun,
        )
        for job, kind, run, tenant, part, since, stopped, bound, started_at, begun in (
            rows
        )
    ]


def watch_jobs(
    conn: Connection, *, after: JobKey, limit: int
) -> tuple[list[WatchedJob], JobKey | None]:
    """Return jobs with max_time_since_success from one on, and where it ended.

    Of ``limit`` revisions some are in force no more: the rest is returned.
    """
    job, revision = after
    rows = _SQL["watch_jobs"].run(
        conn, {"job": job, "revision": revision, "limit": limit}
    )
    watched = [
        WatchedJob(
            job_id=job,
            tenant=tenant,
            part=part,
            since=since,
            succeeded_at=succeeded_at,
            looked_at=looked_at,
            open_since=open_since,
            bound=bound,
        )
        for job, _, tenant, part, since, succeeded_at, looked_at, open_since, bound in (
            rows
        )
        if tenant is not None
    ]
    return watched, (rows[-1][0], rows[-1][1]) if len(rows) == limit else None


def find_successes(
    conn: Connection, *, sought: Sequence[Sought], gone: Millis
) -> dict[UUID, Millis]:
    """Return when a run ended well, for those of these jobs that have such a run.

    A run from before ``gone`` that the history has no more was a success.
    """
    rows = _SQL["find_successes"].run(
        conn,
        {
            "parts": [one.part for one in sought],
            "jobs": [one.job_id for one in sought],
            "instants": [one.after for one in sought],
            "rows": [one.rows for one in sought],
            "gone": gone,
        },
    )
    return dict(rows)


def save_watched(
    conn: Connection, *, successes: dict[UUID, Millis | None], now: Millis
) -> None:
    """Note that successes of these jobs were looked for, and what was found."""
    _SQL["save_watched"].change(
        conn,
        {
            "now": now,
            "jobs": list(successes),
            "succeeded": [moment or 0 for moment in successes.values()],
        },
    )


def change_breaches(conn: Connection, *, told: Sequence[Told], now: Millis) -> int:
    """Begin and end breaches in one transaction; return how many events it wrote."""
    return _SQL["change_breaches"].change(
        conn,
        {
            "now": now,
            "changes": [_CHANGES[one.change] for one in told],
            "jobs": [one.breach.job_id for one in told],
            "kinds": [int(one.breach.kind) for one in told],
            "runs": [one.breach.run_id for one in told],
            "tenants": [one.tenant for one in told],
            "parts": [one.part for one in told],
            "details": [one.detail for one in told],
        },
    )


def list_events(
    conn: Connection, *, job: UUID, before: int, limit: int
) -> list[JobEvent]:
    """Return a job's events with numbers below ``before``, newest first."""
    rows = _SQL["list_events"].run(conn, {"job": job, "before": before, "limit": limit})
    return [
        JobEvent(
            id=number, at=at, kind=WatchKind(kind), over=over, run_id=run, detail=detail
        )
        for number, at, kind, over, run, detail in rows
    ]


def list_breaches(conn: Connection, *, job: UUID, limit: int) -> list[Wrong]:
    """Return what is wrong with a job now, at most ``limit``."""
    rows = _SQL["list_breaches"].run(conn, {"job": job, "limit": limit})
    return [
        Wrong(
            kind=WatchKind(kind),
            run_id=None if run == NO_RUN else run,
            since=since,
            detail=detail,
        )
        for kind, run, since, detail in rows
    ]


def count_breaches(conn: Connection, *, limit: int) -> int:
    """Return how much is wrong now with all jobs together, at most ``limit``."""
    [(count,)] = _SQL["count_breaches"].run(conn, {"limit": limit})
    return int(count)


def purge_events(conn: Connection, *, before: Millis, limit: int) -> int:
    """Delete events from before an instant; return how many."""
    return _SQL["purge_events"].change(conn, {"before": before, "limit": limit})


def _late(row: tuple[Any, ...]) -> Suspect:
    run, job, tenant, part, due_at, bound, window = row
    return Suspect(
        run_id=run,
        job_id=job,
        tenant=tenant,
        part=part,
        due_at=due_at,
        bound=bound,
        jitter_window=window,
    )


def _long(row: tuple[Any, ...]) -> Suspect:
    run, job, tenant, part, attempt, started_at, bound = row
    return Suspect(
        run_id=run,
        job_id=job,
        tenant=tenant,
        part=part,
        attempt=attempt,
        started_at=started_at,
        bound=bound,
    )
