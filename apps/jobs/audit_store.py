"""The statements of the audit, one function a file; each of them only reads."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from apps.runtime import sql
from apps.runtime.locks import PARTITION_LOCKS
from apps.runtime.sessions import Connection
from chrono.rules.instants import DAY, Millis, parse_instant

_SQL = {
    name: sql.load("jobs", f"audit_{name}")
    for name in (
        "access",
        "attempts",
        "constraints",
        "dead",
        "effects",
        "doubles",
        "events",
        "executions",
        "jobs",
        "ledger",
        "limits",
        "live",
        "lost",
        "overdue",
        "plans",
        "revisions",
        "run_page",
        "runs",
        "server",
        "slots",
        "snapshot",
        "strays",
        "timers",
        "undecided",
        "unrecorded",
        "updates",
    )
}

FIRST = UUID(int=0)
NO_GROUP = 2**31 - 1
EVENTS_OF_A_JOB = 1_000

type Found = tuple[str, str]
"""What an audit found: its subject, and what is wrong with it."""
type Coded = tuple[str, str]
"""What an audit found: a word for what is wrong, and its subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What the database says of itself."""

    now: Millis
    commit_times: bool
    """Whether it can tell when a row was committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What of the database is looked at."""

    since: Millis
    runs_since: Millis
    """Before it, runs may have left the history."""
    commit_times: bool
    limit: int
    """How much is told at most by one statement."""
    tenant: int | None = None
    jobs: tuple[UUID, ...] | None = None

    @property
    def whose(self) -> dict[str, Any]:
        """Return the parameters that say whose rows are looked at."""
        return {
            "tenant": self.tenant,
            "jobs": None if self.jobs is None else list(self.jobs),
        }

    def stretch(
        self, low: UUID | None, high: UUID, runs: Sequence[UUID] | None
    ) -> dict[str, Any]:
        """Return the parameters that name the runs in (low, high], or these of them.

        None begins with the first that is looked at.
        """
        return {
            "low": _id_at(self.runs_since) if low is None else low,
            "settled_since": _id_at(max(0, self.runs_since - DAY)),
            "high": high,
            "runs": None if runs is None else list(runs),
            "tenant": self.tenant,
            "limit": self.limit,
            "commit_times": self.commit_times,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job with its plan in force."""

    id: UUID
    tenant: int
    part: int
    version: int
    revision: int
    stopped: bool
    """Whether it is paused or deleted."""
    activated_at: Millis
    schedule: dict[str, Any]
    """With its number of runs, if it has one; empty where its revision is missing."""
    decided: Millis
    """Up to here nothing is looked at; what begins before may reach so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """How a job was planned before or after a change, as its audit event tells."""

    version: int
    begins: Millis
    stopped: bool
    revision: int
    other_rules: bool = False
    """Whether it was changed because its time zone had other rules by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How a change of a job moved its plan; None where its event does not tell."""

    job_id: UUID
    before: Side | None
    after: Side | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """A row of the ledger."""

    place: int
    """Of its job among those asked for."""
    scheduled_for: Millis
    last_for: Millis | None
    fired: bool
    occurrences: int | None
    version: int
    revision: int
    attempt_group: int
    fence: int
    stamp: int
    """When it was committed, or written, in microseconds since 1970."""
    operator: bool
    """Whether a person skipped it."""
    unsettled: UUID | None
    """Its run, where that is not in the history."""
    wrong: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A job beside its timers."""

    id: UUID
    stopped: bool
    schedule: dict[str, Any]
    jitter_window: Millis
    decided: Millis
    timers: int
    scheduled_for: Millis | None
    due_at: Millis | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """A timer that was due a while ago."""

    job_id: UUID
    ref: UUID
    part: int
    due_at: Millis
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """An execution, over or not, that has to do with a bound."""

    run_id: UUID
    job_id: UUID
    revision: int
    tenant: int
    most: int | None
    """How many runs of the job's schedule there may be at a time."""
    key: str | None
    """What its run shares with those of other jobs."""
    most_of_key: int
    most_of_tenant: int | None
    started_at: Millis
    ended_at: Millis


@contextmanager
def audit_snapshot(conn: Connection, *, timeout: Millis) -> Iterator[None]:
    """Open a transaction that reads one snapshot, each statement within ``timeout``.

    ``conn`` is an autocommit session.
    """
    with conn.transaction():
        _SQL["snapshot"].run(conn)
        audit_limits(conn, timeout=timeout)
        yield


def audit_limits(conn: Connection, *, timeout: Millis) -> None:
    """Bound the waits and the statements of the open transaction."""
    _SQL["limits"].run(conn, {"timeout": str(timeout)})


def audit_server(conn: Connection) -> Server:
    """Return the database's clock, and whether it keeps commit times."""
    [(now, commit_times)] = _SQL["server"].run(conn)
    return Server(now=now, commit_times=commit_times)


def audit_jobs(
    conn: Connection, *, reach: Reach, after: UUID, limit: int
) -> list[JobRow]:
    """Return the next jobs by id."""
    rows = _SQL["jobs"].run(
        conn, {**reach.whose, "after": after, "limit": limit, "since": reach.since}
    )
    return [
        JobRow(
            id=job,
            tenant=tenant,
            part=part,
            version=version,
            revision=revision,
            stopped=stopped,
            activated_at=activated_at,
            schedule=_schedule(schedule),
            decided=max(reach.since, decided or 0),
        )
        for (
            job,
            tenant,
            part,
            version,
            revision,
            stopped,
            activated_at,
            schedule,
            decided,
        ) in rows
    ]


def audit_plans(
    conn: Connection, *, jobs: Sequence[JobRow], since: Millis
) -> list[Change]:
    """Return how jobs were changed since an instant, the newest 1,000 of each."""
    rows = _SQL["plans"].run(
        conn,
        {
            "jobs": [job.id for job in jobs],
            "tenants": [job.tenant for job in jobs],
            "since_id": _id_at(since),
            "limit": EVENTS_OF_A_JOB,
        },
    )
    return [
        Change(
            job_id=job,
            before=_before(before, action),
            after=_side(after),
        )
        for job, action, before, after in (
            (row[0], row[1], row[2:6], row[6:]) for row in rows
        )
    ]


def audit_revisions(
    conn: Connection, *, revisions: Sequence[tuple[UUID, int]]
) -> dict[tuple[UUID, int], dict[str, Any]]:
    """Return the schedules of those (job, revision) that exist."""
    rows = _SQL["revisions"].run(
        conn,
        {
            "jobs": [job for job, _ in revisions],
            "revisions": [number for _, number in revisions],
        },
    )
    return {(job, number): _schedule(schedule) for job, number, schedule in rows}


def audit_ledger(
    conn: Connection,
    *,
    reach: Reach,
    jobs: Sequence[JobRow],
    after: Sequence[tuple[Millis, int]],
    rows: int,
) -> list[LedgerRow]:
    """Return the next ledger rows of jobs, up to ``rows`` of each, by instant.

    ``after`` is the instant and attempt group of the last row known of each.
    """
    found = _SQL["ledger"].run(
        conn,
        {
            "jobs": [job.id for job in jobs],
            "parts": [job.part for job in jobs],
            "tenants": [job.tenant for job in jobs],
            "after": [moment for moment, _ in after],
            "groups": [group for _, group in after],
            "rows": rows,
            "runs_since": reach.runs_since,
            "commit_times": reach.commit_times,
        },
    )
    return [
        LedgerRow(
            place=place,
            scheduled_for=scheduled_for,
            last_for=last_for,
            fired=fired,
            occurrences=occurrences,
            version=version,
            revision=revision,
            attempt_group=attempt_group,
            fence=fence,
            stamp=stamp,
            operator=operator,
            unsettled=unsettled,
            wrong=wrong,
        )
        for (
            place,
            scheduled_for,
            last_for,
            fired,
            occurrences,
            version,
            revision,
            attempt_group,
            fence,
            stamp,
            operator,
            unsettled,
            wrong,
        ) in found
    ]


def audit_undecided(
    conn: Connection, *, suspects: Sequence[tuple[UUID, int, Millis, UUID]]
) -> set[int]:
    """Return the places of those (job, partition, instant, run) that are undecided."""
    rows = _SQL["undecided"].run(
        conn,
        {
            "jobs": [job for job, _, _, _ in suspects],
            "parts": [part for _, part, _, _ in suspects],
            "moments": [moment for _, _, moment, _ in suspects],
            "runs": [run for _, _, _, run in suspects],
        },
    )
    return {place for (place,) in rows}


def audit_lost(conn: Connection, *, runs: Sequence[tuple[UUID, int]]) -> list[UUID]:
    """Return those of these runs, each with its partition, that are nowhere."""
    rows = _SQL["lost"].run(
        conn, {"runs": [run for run, _ in runs], "parts": [part for _, part in runs]}
    )
    return [run for (run,) in rows]


def audit_unrecorded(
    conn: Connection, *, reach: Reach, jobs: Sequence[JobRow]
) -> list[Found]:
    """Return changes of jobs without an audit event of the same transaction."""
    return _found(
        conn,
        "unrecorded",
        {
            "jobs": [job.id for job in jobs],
            "since": reach.since,
            "limit": reach.limit,
        },
    )


def audit_access(conn: Connection, *, reach: Reach) -> list[Found]:
    """Return keys without an audit event of the same transaction."""
    return _found(
        conn,
        "access",
        {"since": reach.since, "tenant": reach.tenant, "limit": reach.limit},
    )


def audit_events(
    conn: Connection, *, reach: Reach, after: UUID | None, limit: int
) -> tuple[UUID | None, list[Found]]:
    """Return the last of the next audit events, and jobs that are not as one tells.

    The first events are those since ``reach.since``; None stands for the end.
    """
    rows = _SQL["events"].run(
        conn,
        {
            **reach.whose,
            "after": _id_at(reach.since) if after is None else after,
            "limit": limit,
        },
    )
    last = rows[-1][0] if len(rows) == limit else None
    return last, [(subject, wrong) for _, subject, wrong in rows if wrong is not None]


def audit_run_page(
    conn: Connection, *, reach: Reach, after: UUID | None, limit: int
) -> UUID | None:
    """Return the last of the next so many runs, None where there are fewer.

    The first are those since ``reach.runs_since``.
    """
    [(last, count)] = _SQL["run_page"].run(
        conn,
        {
            "after": _id_at(reach.runs_since) if after is None else after,
            "tenant": reach.tenant,
            "limit": limit,
        },
    )
    return last if count == limit else None


def audit_runs(conn: Connection, *, stretch: Mapping[str, Any]) -> list[Coded]:
    """Return what is wrong with the settled runs of a stretch."""
    return _found(conn, "runs", stretch)


def audit_attempts(
    conn: Connection, *, stretch: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    """Return gaps and overlaps of a stretch: which of them, the run, what is wrong."""
    rows = _SQL["attempts"].run(conn, stretch)
    return [(code, subject, detail) for code, subject, detail in rows]


def audit_effects(
    conn: Connection, *, stretch: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    """Return runs of a stretch that had two ends or begins too many, or are unknown
    without a cause: which of these, the run, what is wrong."""
    rows = _SQL["effects"].run(conn, stretch)
    return [(code, subject, detail) for code, subject, detail in rows]


def audit_executions(
    conn: Connection, *, stretch: Mapping[str, Any]
) -> list[Execution]:
    """Return the executions of a stretch of runs whose number at a time is bounded."""
    rows = _SQL["executions"].run(conn, stretch)
    return [
        Execution(
            run_id=run,
            job_id=job,
            revision=revision,
            tenant=tenant,
            most=most,
            key=key,
            most_of_key=most_of_key,
            most_of_tenant=most_of_tenant,
            started_at=started_at,
            ended_at=ended_at,
        )
        for (
            run,
            job,
            revision,
            tenant,
            most,
            key,
            most_of_key,
            most_of_tenant,
            started_at,
            ended_at,
        ) in rows
    ]


def audit_dead(conn: Connection, *, stretch: Mapping[str, Any]) -> list[Found]:
    """Return dead runs of a stretch without an error or a dead letter."""
    return _found(conn, "dead", stretch)


def audit_live(conn: Connection, *, reach: Reach) -> list[Coded]:
    """Return what is wrong with runs that are ready, leased or wait for a retry."""
    return _found(conn, "live", {"jobs": reach.whose["jobs"], "limit": reach.limit})


def audit_timers(
    conn: Connection, *, reach: Reach, parts: Sequence[int], after: UUID, limit: int
) -> list[PlannedJob]:
    """Return the next jobs of some partitions, by id, beside their timers."""
    rows = _SQL["timers"].run(
        conn, {**reach.whose, "parts": list(parts), "after": after, "limit": limit}
    )
    return [
        PlannedJob(
            id=job,
            stopped=stopped,
            schedule=_schedule(schedule),
            jitter_window=jitter_window or 0,
            decided=decided,
            timers=timers,
            scheduled_for=scheduled_for,
            due_at=due_at,
        )
        for (
            job,
            stopped,
            schedule,
            jitter_window,
            decided,
            timers,
            scheduled_for,
            due_at,
        ) in rows
    ]


def audit_overdue(conn: Connection, *, reach: Reach) -> list[Overdue]:
    """Return timers due for more than two seconds whose partition is led."""
    rows = _SQL["overdue"].run(
        conn, {**reach.whose, "class": PARTITION_LOCKS, "limit": reach.limit}
    )
    return [
        Overdue(job_id=job, ref=ref, part=part, due_at=due_at, seconds=seconds)
        for job, ref, part, due_at, seconds in rows
    ]


def audit_doubles(conn: Connection, *, reach: Reach) -> list[Found]:
    """Return runs that are in two places at once."""
    return _found(conn, "doubles", {"limit": reach.limit})


def audit_slots(conn: Connection, *, reach: Reach) -> list[Found]:
    """Return slots whose run is nowhere."""
    return _found(conn, "slots", {"limit": reach.limit})


def audit_constraints(
    conn: Connection, *, constraints: Mapping[str, Sequence[str]]
) -> list[Found]:
    """Return what of these names, by table, is not in force."""
    pairs = [(table, name) for table, names in constraints.items() for name in names]
    return _found(
        conn,
        "constraints",
        {
            "relations": [table for table, _ in pairs],
            "names": [name for _, name in pairs],
        },
    )


def audit_updates(conn: Connection) -> list[Found]:
    """Return tables whose rows are never updated but were."""
    return _found(conn, "updates", {})


def audit_strays(conn: Connection) -> list[Found]:
    """Return default leaves that have rows."""
    return _found(conn, "strays", {})


def _found(conn: Connection, name: str, params: Mapping[str, Any]) -> list[Found]:
    return [(subject, detail) for subject, detail in _SQL[name].run(conn, params)]


def _id_at(moment: Millis) -> UUID:
    """Return an id below all of an instant: ids of runs and events sort by time."""
    return UUID(int=moment << 80)


def _before(told: Sequence[Any], action: str) -> Side | None:
    side = _side(told)
    if side is None:
        return None
    # A job is restored as what it was before it was deleted.
    return replace(
        side,
        stopped=side.stopped or action == "job.restore",
        other_rules=action == "job.replan",
    )


def _side(told: Sequence[Any]) -> Side | None:
    version, begins, paused, revision = told
    if version is None or begins is None:
        return None
    return Side(
        version=version,
        begins=parse_instant(begins),
        stopped=bool(paused),
        revision=revision,
    )


def _schedule(text: str | None) -> dict[str, Any]:
    """Return the fields of a schedule, none where there is nothing of the kind."""
    fields = {} if text is None else json.loads(text)
    return fields if isinstance(fields, dict) else {}
