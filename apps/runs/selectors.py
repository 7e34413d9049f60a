"""Runs as people and programs see them: state in public words, five instants, lags."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from apps.runs import letter_store, store
from apps.runs.errors import RunNotFound
from apps.runs.letter_store import Reruns
from apps.runs.store import (
    AttemptRow,
    JobRunKey,
    Missed,
    Resolution,
    RunDetail,
    RunRow,
)
from apps.runtime.sessions import Connection
from chrono.rules.catchup import may_stand_for_others
from chrono.rules.instants import LATEST, Millis
from chrono.rules.keys import PAST_ID, partition_of_run, scheduled_for_of
from chrono.rules.partitions import partition_of
from chrono.rules.states import FINAL, Reason, RunState, TimerKind, status_of

FIRST_ID = UUID(int=0)

_WAITING = {
    "lease": RunState.RUNNING,
    "parked": RunState.PARKED,
    "blocked": RunState.PARKED,
    "ready": RunState.READY,
    "skip": RunState.SKIPPED,
}
_TRIGGERS: dict[int, str] = {
    TimerKind.SCHEDULE: "schedule",
    TimerKind.LATE: "catchup",
    TimerKind.MANUAL: "manual",
    TimerKind.BACKFILL: "backfill",
}
RERUN = "redrive"
"""The trigger of what runs a finished run again, however it was asked for."""
_TIMED = (
    (TimerKind.LATE, RunState.SCHEDULED),
    (TimerKind.MANUAL, RunState.SCHEDULED),
    (TimerKind.RETRY, RunState.RETRYING),
)
_REASONED = (FINAL | {RunState.PARKED}) - {RunState.SUCCESS}
"""Where a run can be for a reason; the index of these has no success in it."""
_RESOLVED = frozenset({RunState.SUCCESS, RunState.FAILED})
_LOOK = 500
_LOOKS = 10

type Key = UUID | JobRunKey
"""From where a list goes on: a run's id, or a place in a job's ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which runs a list shows; None leaves a question open."""

    job: UUID | None = None
    states: frozenset[RunState] | None = None
    queue: str | None = None
    reason: Reason | None = None
    since: Millis | None = None
    """scheduled_for at or after this."""
    until: Millis | None = None
    """scheduled_for before this."""

    @property
    def by_ledger(self) -> bool:
        """Whether the list is read from the ledger of one job.

        History has no index by job. What ended badly is found by its state, though,
        without walking through every success.
        """
        if self.job is None:
            return False
        ledger = {RunState.SUCCESS, RunState.SKIPPED}
        return self.states is None or bool(self.states & ledger)

    @property
    def picky(self) -> bool:
        """Whether rows of the ledger are looked at that are not shown."""
        return (self.states, self.queue, self.reason) != (None, None, None)

    def matches(self, row: RunRow) -> bool:
        """Tell whether a row's state, queue and reason are wanted."""
        if self.queue is not None and row.queue != self.queue:
            return False
        if self.reason is not None and row.reason != self.reason:
            return False
        return self.states is None or state_of(row) in self.states


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some rows, and from where the next page goes on; None at the end."""

    rows: Sequence[RunRow]
    next: Key | None


def state_of(row: RunRow) -> RunState:
    """Return where a run stands."""
    if row.state is not None:
        return RunState(row.state)
    if row.place == "timer":
        retries = row.kind == TimerKind.RETRY
        return RunState.RETRYING if retries else RunState.SCHEDULED
    # Its rows are pruned, the ledger remembers that it was fired.
    return _WAITING.get(row.place, RunState.SUCCESS)


def states_of_status(status: str) -> frozenset[RunState]:
    """Return the states whose public status is this."""
    return frozenset(state for state in RunState if status_of(state) == status)


def trigger_of(row: RunRow, detail: RunDetail) -> str | None:
    """Return the public word for what made a run, where that is known."""
    if detail.rerun_of is not None:
        return RERUN
    kind = row.kind if detail.trigger is None else detail.trigger
    return None if kind is None else _TRIGGERS.get(kind)


def reason_of(row: RunRow) -> str | None:
    """Return the public word for why, where there is a reason."""
    return None if row.reason is None else Reason(row.reason).label


def get_run(
    conn: Connection, run: UUID, *, tenant: int | None
) -> tuple[RunRow, RunDetail]:
    """Return a run of this tenant, None for all, wherever it is; raises RunNotFound."""
    part, scheduled_for = partition_of_run(run), scheduled_for_of(run)
    if scheduled_for >= LATEST:
        raise RunNotFound
    for look in (store.get_run, store.find_skip):
        found = look(
            conn, run=run, part=part, scheduled_for=scheduled_for, tenant=tenant
        )
        if found is not None:
            row, detail = found
            links = get_reruns(conn, run)
            return row, replace(
                detail,
                missed=_missed(conn, row),
                rerun_of=links.rerun_of,
                rerun_as=links.rerun_as,
                told_at=_told_at(conn, row),
                log=_log(conn, row),
            )
    raise RunNotFound


def get_reruns(conn: Connection, run: UUID) -> Reruns:
    """Return to which runs of its occurrence a run is linked."""
    return letter_store.find_reruns(conn, run=run, part=partition_of_run(run))


def find_resolution(conn: Connection, run: UUID) -> Resolution | None:
    """Return what a person said became of a run; None where nobody did."""
    return store.find_resolution(conn, run=run, part=partition_of_run(run))


def list_attempts(conn: Connection, run: UUID) -> list[AttemptRow]:
    """Return the failed attempts of a run, first to last."""
    return store.list_attempts(conn, run=run, part=partition_of_run(run))


def list_runs(
    conn: Connection, *, tenant: int, wanted: Filter, after: Key | None, limit: int
) -> Page:
    """Return a tenant's runs, newest scheduled_for first, from after a key on.

    ``after`` is the ``next`` of the page before, with the same filter. A page may be
    short and yet have a ``next``: after so many rows that match not it is given back.
    """
    if wanted.by_ledger:
        return _job_runs(conn, tenant=tenant, wanted=wanted, after=after, limit=limit)
    rows = _tenant_runs(
        conn, tenant=tenant, wanted=wanted, after=after, limit=limit + 1
    )
    page = rows[:limit]
    return Page(rows=page, next=page[-1].id if len(rows) > limit else None)


def _log(conn: Connection, row: RunRow) -> str | None:
    if row.place != "run" or row.worker is None:
        return None
    return store.read_log(conn, run=row.id, part=row.part)


def _told_at(conn: Connection, row: RunRow) -> Millis | None:
    if not row.cancel:
        return None
    told = store.read_told(conn, run=row.id, part=row.part)
    return None if told is None else told[0]


def _missed(conn: Connection, row: RunRow) -> Missed | None:
    if row.place == "skip" or not may_stand_for_others(row.id, begun=row.started_at):
        return None
    return store.load_missed(conn, runs=[(row.id, row.job_id)]).get(row.id)


def _tenant_runs(
    conn: Connection, *, tenant: int, wanted: Filter, after: Key | None, limit: int
) -> list[RunRow]:
    states = wanted.states
    if wanted.reason is not None:
        states = _REASONED if states is None else states & _REASONED
    final = None if states is None else sorted(states & FINAL)
    high = PAST_ID if wanted.until is None else _id_at(wanted.until)
    return store.list_runs(
        conn,
        tenant=tenant,
        low=FIRST_ID if wanted.since is None else _id_at(wanted.since),
        high=min(high, after) if isinstance(after, UUID) else high,
        limit=limit,
        final=final is None or bool(final),
        states=final,
        resolved=sorted(_resolved(wanted)),
        running=states is None or RunState.RUNNING in states,
        parked=states is None or RunState.PARKED in states,
        ready=states is None or RunState.READY in states,
        kinds=[k for k, state in _TIMED if states is None or state in states],
        queue=wanted.queue,
        job=wanted.job,
        reason=wanted.reason,
    )


def _resolved(wanted: Filter) -> frozenset[RunState]:
    """Return the verdicts to look for; where nothing is asked for, all rows show."""
    if wanted.reason is None and wanted.states is None:
        return frozenset()
    if wanted.reason not in (None, Reason.RESOLVED):
        return frozenset()
    return _RESOLVED if wanted.states is None else wanted.states & _RESOLVED


def _job_runs(
    conn: Connection, *, tenant: int, wanted: Filter, after: Key | None, limit: int
) -> Page:
    if wanted.job is None:
        raise ValueError("only a job's runs are found by its ledger")
    end = LATEST - 1 if wanted.until is None else wanted.until
    before = JobRunKey(scheduled_for=end, attempt_group=-1)
    if isinstance(after, JobRunKey):
        before = min(before, after, key=_order)
    rows: list[RunRow] = []
    for _ in range(_LOOKS):
        found = store.list_job_runs(
            conn,
            tenant=tenant,
            job=wanted.job,
            part=partition_of(wanted.job),
            since=wanted.since or 0,
            before=before,
            limit=_LOOK if wanted.picky else limit + 1,
        )
        for row, key in found:
            if len(rows) == limit:
                return Page(rows=rows, next=before)
            before = key
            if wanted.matches(row):
                rows.append(row)
        if len(found) < (_LOOK if wanted.picky else limit + 1):
            return Page(rows=rows, next=None)
    return Page(rows=rows, next=before)


def _order(key: JobRunKey) -> tuple[Millis, int]:
    return key.scheduled_for, key.attempt_group


def _id_at(moment: Millis) -> UUID:
    return UUID(int=moment << 80)
