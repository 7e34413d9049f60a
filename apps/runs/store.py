"""The statements of this room, one function a file; rows in, frozen values out."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any, Final, NamedTuple

from psycopg.types.json import Jsonb

from apps.runtime import sql
from apps.runtime.arrays import int8s, random_uuids, uuids
from apps.runtime.sessions import Connection
from chrono.rules.instants import Millis, to_millis, to_millis_if_any
from chrono.rules.keys import partition_of_run, scheduled_for_of
from chrono.rules.states import RunState

_SQL = {
    name: sql.load("runs", name)
    for name in (
        "claim_ready",
        "settle_successes",
        "find_oldest_priority",
        "list_leases",
        "load_targets",
        "insert_run_input",
        "load_run_inputs",
        "load_run_queueing",
        "load_missed",
        "purge_run_inputs",
        "note_if_leased",
        "load_checkpoints",
        "forget_progress",
        "purge_progress",
        "purge_lease_ends",
        "insert_slot",
        "insert_slots_of_live",
        "has_slots",
        "list_live_slots",
        "forget_settled_slots",
        "forget_lost_slots",
        "count_ahead",
        "settle_if_leased",
        "mark_transactional",
        "begin_effects",
        "read_transaction",
        "claim_set_aside",
        "cancel_if_timed",
        "cancel_timed_of_jobs",
        "cancel_if_blocked",
        "cancel_blocked_of_jobs",
        "cancel_if_ready",
        "cancel_if_leased",
        "read_told",
        "end_lease",
        "reschedule_if_timed",
        "reschedule_if_blocked",
        "locate_run",
        "get_run",
        "find_skip",
        "resolve_if_open",
        "find_resolution",
        "purge_resolutions",
        "find_gate",
        "list_attempts",
        "read_log",
        "list_runs",
        "list_job_runs",
        "keep_runs",
        "keep_attempts",
        "read_last_write",
        "has_backfill",
        "purge_runs_kept",
        "purge_attempts_kept",
        "purge_dead_letters",
    )
}
MOST_COLLAPSED = 1_000
"""How many rows of the ledger are added up for one run; a row may be a stretch."""


type Rank = tuple[int, int]
"""A priority and a tag: the lowest in its queue goes first."""

FRONT: Final[Rank] = (0, -(1 << 63))
"""Before every run of a queue."""


class Lease(NamedTuple):
    """One execution that a worker holds; the token proves it.

    Of the statements that claim it is the row as it is: every run has one.
    """

    run_id: uuid.UUID
    part: int
    job_id: uuid.UUID
    revision: int
    tenant: int
    attempt: int
    fence: int
    token: uuid.UUID
    job_deleted: bool | None
    gates: int = 0
    """The number of the gates when it was claimed."""
    priority: int = 0
    """Told by a claim of a queue's first runs, as its tag."""
    tag: int = 0


class Written(NamedTuple):
    """A target as it is stored: two that are equal are called in the same way."""

    target: str
    """JSON as text, as the next two."""
    payload: str | None
    retry_policy: str
    once: bool
    """Whether its runs are begun at most once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a worker must know of one revision of a job."""

    job_id: uuid.UUID
    revision: int
    target: dict[str, Any]
    payload: Any
    retry_policy: dict[str, Any]
    once: bool = False
    """Whether its runs are begun at most once."""
    text: str | None = None
    """The payload as it is stored; None where it is that of one run alone."""
    size: int = 0
    """Of how many characters it is, with its payload, as it is stored."""
    unreadable: bool = False
    """Whether it, or its payload, is fit for the database and not for Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """The missed occurrences that one run stands for, itself among them."""

    first: Millis
    last: Millis
    """The run's own instant."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Queueing:
    """How a run queues where that is not its job's way; None is the job's."""

    priority: int | None
    queue: str | None
    key: str | None
    """The concurrency key that its own payload fills."""


class Settlement(NamedTuple):
    """What became of one execution. The default is a plain success.

    ``state`` is a final :class:`~chrono.rules.states.RunState`, or 0 for: again at
    ``due``, with ``spent`` (0 or 1) added to the attempt number. ``error`` writes a row
    of ``attempt``.
    """

    run_id: uuid.UUID
    token: uuid.UUID
    state: int = 1
    reason: int = 0
    spent: int = 1
    due: Millis = 0
    error: str | None = None
    result: Any = None
    log: str | None = None
    """What the handler logged last."""
    charged: "Settlement | None" = None
    """What an interruption is instead, once the run was interrupted too often."""

    @property
    def is_plain(self) -> bool:
        """Whether it is a success that has nothing to keep but itself."""
        return self.state == 1 and self.result is None and self.log is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What one execution tells of itself; a text of None says: nothing of progress."""

    run_id: uuid.UUID
    token: uuid.UUID
    share: float | None = None
    text: str | None = None
    checkpoint: str | None = None
    """As JSON text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a run last told of itself."""

    share: float | None
    text: str
    at: Millis
    attempt: int
    """The attempt that told it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """A transaction that has begun, for what one execution does."""

    transaction: str
    """Its id."""
    held: bool
    """Whether the lease is there."""
    known: bool
    """Whether its job is: else this is another database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run as a list shows it, from whichever table holds it."""

    id: uuid.UUID
    job_id: uuid.UUID
    job_key: str
    revision: int
    part: int
    place: str
    """The table: run, lease, parked, blocked, timer, ready; skip for an occurrence
    that has no run, and empty for one whose rows are pruned."""
    kind: int | None
    """The timer's kind, where a timer holds it."""
    cancel: bool
    """Whether its worker is told to stop."""
    state: int | None
    """The final state, where it has one."""
    reason: int | None
    due_at: Millis | None
    dispatched_at: Millis | None
    started_at: Millis | None
    finished_at: Millis | None
    fence: int | None
    priority: int | None
    attempt: int | None
    queue: str | None
    worker: uuid.UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail:
    """What a single run has besides its row."""

    retry_policy: dict[str, Any] | None
    payload: Any
    result: Any
    checkpoint: Any
    trigger: int | None
    """The kind of the timer that the ledger says it came from."""
    attempt_group: int | None
    beat_at: Millis | None
    error_reason: int | None
    error: str | None
    error_at: Millis | None
    missed: Missed | None = None
    """What it stands for besides itself."""
    rerun_of: uuid.UUID | None = None
    """The run of the same occurrence that it runs again."""
    rerun_as: uuid.UUID | None = None
    """The run that ran it again."""
    log: str | None = None
    """What it logged last, where no failed attempt has it."""
    told_at: Millis | None = None
    """Since when its worker is told to stop it."""
    progress: Progress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What a person said became of a run."""

    state: int
    actor: str
    note: str
    at: Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """One failed attempt."""

    attempt: int
    started_at: Millis
    finished_at: Millis
    reason: int
    error: str
    worker: uuid.UUID
    fence: int
    log: str | None
    """What it logged last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRunKey:
    """The place of a row in a job's list."""

    scheduled_for: Millis
    attempt_group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a run is: the table, its cancel flag, and its kind, reason or state."""

    table: str
    cancel: bool
    detail: int | None


def claim_ready(
    conn: Connection,
    *,
    queue: str,
    limit: int,
    worker: uuid.UUID,
    start: Rank = FRONT,
) -> list[Lease]:
    """Claim up to ``limit`` runs of a queue; run it on a hot session only.

    Those of high priority first, from ``start`` on.

    After an error the claim may have been made all the same: see :func:`list_leases`.
    """
    rows = _SQL["claim_ready"].run(
        conn,
        {
            "queue": queue,
            "limit": limit,
            "worker": worker,
            "least": start[0],
            "after": start[1],
            "tokens": random_uuids(limit),
        },
    )
    return list(starmap(Lease, rows))


def find_oldest_priority(conn: Connection, *, queue: str) -> int:
    """Return the priority of the run of a queue that has waited longest by its tag.

    0 where none waits. Hot sessions only.
    """
    [(priority,)] = _SQL["find_oldest_priority"].run(conn, {"queue": queue})
    return priority or 0


def list_leases(conn: Connection, *, worker: uuid.UUID) -> list[Lease]:
    """Return all that a worker holds, by the database's account."""
    return list(starmap(Lease, _SQL["list_leases"].run(conn, {"worker": worker})))


def load_targets(
    conn: Connection, *, revisions: Sequence[tuple[uuid.UUID, int]]
) -> dict[tuple[uuid.UUID, int], Written]:
    """Return the targets of these (job, revision) pairs; they never change.

    Hot sessions only.
    """
    rows = _SQL["load_targets"].run(
        conn,
        {
            "jobs": uuids([job for job, _ in revisions]),
            "revisions": int8s([revision for _, revision in revisions]),
        },
    )
    return {(row[0], row[1]): Written._make(row[2:]) for row in rows}


def insert_run_input(
    conn: Connection,
    *,
    run: uuid.UUID,
    part: int,
    payload: str | None,
    priority: int | None,
    queue: str | None = None,
    key: str | None = None,
) -> None:
    """Write what a run has of its own, one at least; a payload is JSON as text.

    With it goes the concurrency ``key`` that it fills.
    """
    _SQL["insert_run_input"].change(
        conn,
        {
            "run": run,
            "part": part,
            "payload": payload,
            "priority": priority,
            "queue": queue,
            "key": key,
        },
    )


def load_run_inputs(
    conn: Connection, *, runs: Sequence[tuple[int, uuid.UUID]]
) -> dict[uuid.UUID, Any]:
    """Return the payloads that those of these (part, run) have of their own."""
    rows = _SQL["load_run_inputs"].run(conn, _places(runs))
    return {run: json.loads(payload) for run, payload in rows}


def load_run_queueing(
    conn: Connection, *, runs: Sequence[tuple[int, uuid.UUID]]
) -> dict[uuid.UUID, Queueing]:
    """Return how those of these (part, run) queue that have a way of their own."""
    rows = _SQL["load_run_queueing"].run(conn, _places(runs))
    return {
        run: Queueing(priority=priority, queue=queue, key=key)
        for run, priority, queue, key in rows
    }


def load_missed(
    conn: Connection, *, runs: Sequence[tuple[uuid.UUID, uuid.UUID]]
) -> dict[uuid.UUID, Missed]:
    """Return what those of these runs stand for that stand for several occurrences.

    Runs are given as (run, job), and are the schedule's own.
    """
    rows = _SQL["load_missed"].run(
        conn,
        {
            "parts": [partition_of_run(run) for run, _ in runs],
            "jobs": [job for _, job in runs],
            "runs": [run for run, _ in runs],
            "instants": [scheduled_for_of(run) for run, _ in runs],
            "most": MOST_COLLAPSED,
        },
    )
    return {
        run: Missed(first=first, last=scheduled_for_of(run), count=count)
        for run, first, count in rows
    }


def purge_run_inputs(
    conn: Connection, *, before: uuid.UUID, since: Millis, limit: int
) -> int:
    """Delete inputs of runs with lower ids that wait for nothing; return how many.

    What was made since an instant to run an old run again keeps its own.
    """
    return _SQL["purge_run_inputs"].change(
        conn, {"before": before, "since": since, "limit": limit}
    )


def note_if_leased(
    conn: Connection, notes: Sequence[Note]
) -> tuple[set[uuid.UUID], set[uuid.UUID]]:
    """Keep what executions tell; return the runs written and those whose lease is gone.

    The others are locked by somebody at this moment: tell them again. One that is gone
    has lost its lease, and its handler is to stop. Raises ``psycopg.DataError`` and
    ``IntegrityError`` for what the database does not take.
    """
    rows = _SQL["note_if_leased"].run(
        conn,
        {
            "runs": [note.run_id for note in notes],
            "tokens": [note.token for note in notes],
            "shares": [note.share for note in notes],
            "texts": [note.text for note in notes],
            "checkpoints": [note.checkpoint for note in notes],
        },
    )
    held = {run for run, _ in rows}
    return {run for run, noted in rows if noted}, {n.run_id for n in notes} - held


def load_checkpoints(
    conn: Connection, *, runs: Sequence[uuid.UUID]
) -> dict[uuid.UUID, Any]:
    """Return the checkpoints of those of these runs that told something, or None.

    Ask once they are leased: before that an earlier attempt could write another one.
    """
    rows = _SQL["load_checkpoints"].run(conn, {"runs": list(runs)})
    return {run: _read(checkpoint) for run, checkpoint in rows}


def forget_progress(conn: Connection, *, runs: Sequence[uuid.UUID]) -> int:
    """Forget what these runs told, all of them over; return how many had."""
    return _SQL["forget_progress"].change(conn, {"runs": list(runs)})


def purge_progress(
    conn: Connection, *, before: uuid.UUID, noted_before: Millis, limit: int
) -> int:
    """Delete what runs with lower ids told that wait for nothing; return how many."""
    return _SQL["purge_progress"].change(
        conn, {"before": before, "noted_before": noted_before, "limit": limit}
    )


def purge_lease_ends(conn: Connection, *, before: Millis) -> int:
    """Delete ends of executions from before an instant; return how many."""
    return _SQL["purge_lease_ends"].change(conn, {"before": before})


def insert_slot(conn: Connection, *, part: int, job: uuid.UUID, run: uuid.UUID) -> None:
    """Have a run count against its job's overlap bound until it is settled."""
    _SQL["insert_slot"].change(conn, {"part": part, "job": job, "run": run})


def list_live_slots(conn: Connection, *, part: int, job: uuid.UUID) -> list[uuid.UUID]:
    """Return the runs of a job that count against its bound and are not over."""
    rows = _SQL["list_live_slots"].run(conn, {"part": part, "job": job})
    return [run for (run,) in rows]


def insert_slots_of_live(
    conn: Connection,
    *,
    jobs: Sequence[tuple[int, uuid.UUID]],
    since: Millis,
    most: int,
) -> None:
    """Have live runs of jobs, given as (partition, job), count against their bounds.

    Of each job the newest ``most`` of those whose instant is not before ``since``: of
    older ones the history may be gone. The partitions are locked.
    """
    _SQL["insert_slots_of_live"].change(
        conn,
        {
            "parts": [part for part, _ in jobs],
            "jobs": [job for _, job in jobs],
            "since": since,
            "most": most,
        },
    )


def has_slots(conn: Connection) -> bool:
    """Return whether any run has a slot."""
    [(any_slot,)] = _SQL["has_slots"].run(conn)
    return bool(any_slot)


def forget_settled_slots(conn: Connection) -> int:
    """Forget slots of settled runs; return how many."""
    return _SQL["forget_settled_slots"].change(conn)


def forget_lost_slots(conn: Connection) -> int:
    """Forget slots whose run lies nowhere any more; return how many."""
    return _SQL["forget_lost_slots"].change(conn)


def count_ahead(conn: Connection, *, leaf: str) -> int:
    """Return how many occurrences of a leaf were skipped days ahead."""
    [(count,)] = _SQL["count_ahead"].run(conn, leaf=leaf)
    return int(count)


def settle_if_leased(
    conn: Connection, settlements: Sequence[Settlement], *, horizon: Millis
) -> set[uuid.UUID]:
    """Settle a batch; return the runs whose lease held. The others' results are void.

    Repeating a batch whose answer was lost is safe: every row is guarded by its token.
    """
    odd = [s for s in settlements if not s.is_plain]
    rows = _SQL["settle_if_leased"].run(
        conn,
        {
            "runs": [s.run_id for s in settlements],
            "tokens": [s.token for s in settlements],
            "odd_run": [s.run_id for s in odd],
            "odd_token": [s.token for s in odd],
            "odd_state": [s.state for s in odd],
            "odd_reason": [s.reason for s in odd],
            "odd_spent": [s.spent for s in odd],
            "odd_due": [s.due for s in odd],
            "odd_error": [s.error for s in odd],
            "odd_result": [_json(s.result) for s in odd],
            "odd_log": [s.log for s in odd],
            "horizon": horizon,
        },
    )
    return {run for (run,) in rows}


def settle_successes(
    conn: Connection, settlements: Sequence[Settlement]
) -> set[uuid.UUID]:
    """Settle a batch of plain successes as :func:`settle_if_leased` does, for less.

    On a hot session, in no transaction: raises UniqueViolation where a run is settled
    already, and has then done nothing.
    """
    rows = _SQL["settle_successes"].run(
        conn,
        {
            "runs": uuids([s.run_id for s in settlements]),
            "tokens": uuids([s.token for s in settlements]),
        },
    )
    return {run for (run,) in rows}


def mark_transactional(
    conn: Connection, *, run: uuid.UUID, part: int, token: uuid.UUID
) -> None:
    """Note that what an execution does is undone unless it settles its run itself.

    ``conn`` is in no transaction: it is known from then on, should the worker die.
    """
    _SQL["mark_transactional"].change(conn, {"run": run, "part": part, "token": token})


def begin_effects(
    conn: Connection, *, run: uuid.UUID, part: int, token: uuid.UUID, job: uuid.UUID
) -> Effects:
    """Begin the transaction of an execution's effects; ``conn`` is within one.

    Raises ``UndefinedTable`` in a database that is not Chrono's.
    """
    [row] = _SQL["begin_effects"].run(
        conn, {"run": run, "part": part, "token": token, "job": job}
    )
    return Effects(transaction=row[0], held=row[1], known=row[2])


def read_transaction(conn: Connection) -> str:
    """Return the id of the transaction that ``conn`` is in."""
    [(transaction,)] = _SQL["read_transaction"].run(conn, {})
    return str(transaction)


def claim_set_aside(
    conn: Connection, *, queue: str, limit: int, worker: uuid.UUID
) -> list[Lease]:
    """Claim runs of a queue that were set aside, as :func:`claim_ready` does."""
    rows = _SQL["claim_set_aside"].run(
        conn, {"queue": queue, "limit": limit, "worker": worker}
    )
    return list(starmap(Lease, rows))


def cancel_if_timed(
    conn: Connection, *, run: uuid.UUID, part: int, reason: int, timers: str
) -> bool:
    """Cancel a run that waits in ``timers``; return whether it did."""
    return bool(
        _SQL["cancel_if_timed"].run(
            conn, {"run": run, "part": part, "reason": reason}, timers=timers
        )
    )


def cancel_timed_of_jobs(
    conn: Connection,
    *,
    jobs: Sequence[uuid.UUID],
    parts: Sequence[int],
    reason: int,
    timers: str,
) -> int:
    """Cancel every run of these jobs that waits in ``timers``; return how many.

    ``parts`` are the jobs' partitions. Takes rows SKIP LOCKED, so it never waits.
    """
    return len(
        _SQL["cancel_timed_of_jobs"].run(
            conn,
            {"jobs": list(jobs), "parts": list(parts), "reason": reason},
            timers=timers,
        )
    )


def cancel_if_blocked(
    conn: Connection, *, run: uuid.UUID, part: int, reason: int
) -> bool:
    """Cancel a run that waits behind a gate; return whether it did."""
    return bool(
        _SQL["cancel_if_blocked"].run(
            conn, {"run": run, "part": part, "reason": reason}
        )
    )


def cancel_blocked_of_jobs(
    conn: Connection,
    *,
    jobs: Sequence[uuid.UUID],
    parts: Sequence[int],
    reason: int,
) -> int:
    """Cancel every run of these jobs that waits behind a gate; return how many.

    ``parts`` are the jobs' partitions. Takes rows SKIP LOCKED, so it never waits.
    """
    return len(
        _SQL["cancel_blocked_of_jobs"].run(
            conn, {"jobs": list(jobs), "parts": list(parts), "reason": reason}
        )
    )


def cancel_if_ready(conn: Connection, *, run: uuid.UUID, reason: int) -> bool:
    """Cancel a run that lies in ready; return whether it lay there.

    Look at the lease again after the commit: a claim may have been open on it.
    """
    return bool(_SQL["cancel_if_ready"].run(conn, {"run": run, "reason": reason}))


def cancel_if_leased(
    conn: Connection, *, run: uuid.UUID, part: int, reason: int
) -> bool:
    """Flag a run in execution as cancelled; return whether it is one."""
    return bool(
        _SQL["cancel_if_leased"].run(conn, {"run": run, "part": part, "reason": reason})
    )


def read_told(
    conn: Connection, *, run: uuid.UUID, part: int
) -> tuple[Millis | None, Millis] | None:
    """Return since when a run in execution is told to stop, and the time now.

    None where it is in no execution, or told nothing; the first is None where an older
    version told it.
    """
    for told_at, now in _SQL["read_told"].run(conn, {"run": run, "part": part}):
        return told_at, now
    return None


def end_lease(conn: Connection, *, run: uuid.UUID, part: int, reason: int) -> bool:
    """End an execution at once as cancelled; return whether there was one.

    Its worker is told by its next beat. What it writes later is dropped: its token is
    gone.
    """
    return bool(
        _SQL["end_lease"].run(conn, {"run": run, "part": part, "reason": reason})
    )


def reschedule_if_timed(
    conn: Connection,
    *,
    run: uuid.UUID,
    part: int,
    due: Millis,
    horizon: Millis,
    timers: str,
) -> bool:
    """Have a run that waits in ``timers`` come due at ``due``; tell whether one did."""
    return bool(
        _SQL["reschedule_if_timed"].run(
            conn,
            {"run": run, "part": part, "due": due, "horizon": horizon},
            timers=timers,
        )
    )


def reschedule_if_blocked(
    conn: Connection, *, run: uuid.UUID, part: int, due: Millis
) -> bool:
    """Have a run behind a gate wait until ``due``; return whether there is one."""
    return bool(
        _SQL["reschedule_if_blocked"].run(conn, {"run": run, "part": part, "due": due})
    )


def locate_run(conn: Connection, *, run: uuid.UUID, part: int) -> list[Place]:
    """Return every place of a run in one snapshot; more than one only if withdrawn."""
    return [
        Place(table=table, cancel=cancel, detail=detail)
        for table, cancel, detail in _SQL["locate_run"].run(
            conn, {"run": run, "part": part}
        )
    ]


def get_run(
    conn: Connection,
    *,
    run: uuid.UUID,
    part: int,
    scheduled_for: Millis,
    tenant: int | None,
) -> tuple[RunRow, RunDetail] | None:
    """Return a run of this tenant wherever it is; None where it is nowhere.

    The tenant None stands for all.
    """
    rows = _SQL["get_run"].run(
        conn,
        {"run": run, "part": part, "scheduled_for": scheduled_for, "tenant": tenant},
    )
    for row in rows:
        policy, payload, result, checkpoint, trigger, group, beat = row[19:26]
        share, text, noted_at, attempt = row[29:33]
        detail = RunDetail(
            retry_policy=_read(policy),
            payload=_read(payload),
            result=_read(result),
            checkpoint=_read(checkpoint),
            trigger=trigger,
            attempt_group=group,
            beat_at=to_millis_if_any(beat),
            error_reason=row[26],
            error=row[27],
            error_at=to_millis_if_any(row[28]),
            progress=None
            if noted_at is None
            else Progress(
                share=share, text=text or "", at=to_millis(noted_at), attempt=attempt
            ),
        )
        return _run_row(row[:19]), detail
    return None


def find_skip(
    conn: Connection,
    *,
    run: uuid.UUID,
    part: int,
    scheduled_for: Millis,
    tenant: int | None,
) -> tuple[RunRow, RunDetail] | None:
    """Return the skipped occurrence whose run would have had this id."""
    rows = _SQL["find_skip"].run(
        conn,
        {"run": run, "part": part, "scheduled_for": scheduled_for, "tenant": tenant},
    )
    for (
        job,
        reason,
        at,
        fence,
        revision,
        kind,
        group,
        _,
        _,
        queue,
        priority,
        key,
    ) in rows:
        times = (None, None, None, at)
        where = (run, job, revision, part, fence, priority, None, queue, None, key)
        row = ("skip", None, False, RunState.SKIPPED, reason, *times, *where)
        detail = RunDetail(
            retry_policy=None,
            payload=None,
            result=None,
            checkpoint=None,
            trigger=kind,
            attempt_group=group,
            beat_at=None,
            error_reason=None,
            error=None,
            error_at=None,
        )
        return _run_row(row), detail
    return None


def resolve_if_open(
    conn: Connection, *, run: uuid.UUID, part: int, state: int, actor: str, note: str
) -> bool:
    """Write down what became of a dead or unknown run; False where nothing was."""
    return bool(
        _SQL["resolve_if_open"].run(
            conn,
            {"run": run, "part": part, "state": state, "actor": actor, "note": note},
        )
    )


def find_resolution(
    conn: Connection, *, run: uuid.UUID, part: int
) -> Resolution | None:
    """Return what a person said of a run, None where nobody did."""
    for state, actor, note, at in _SQL["find_resolution"].run(
        conn, {"run": run, "part": part}
    ):
        return Resolution(state=state, actor=actor, note=note, at=at)
    return None


def purge_resolutions(
    conn: Connection, *, below: uuid.UUID, before: Millis, limit: int
) -> int:
    """Delete verdicts on lower ids that are older than an instant; return how many."""
    return _SQL["purge_resolutions"].change(
        conn, {"below": below, "before": before, "limit": limit}
    )


def find_gate(conn: Connection, *, run: uuid.UUID, part: int) -> str | None:
    """Return the key of the gate behind which a run waits; None where it does not."""
    for (gate,) in _SQL["find_gate"].run(conn, {"run": run, "part": part}):
        return str(gate)
    return None


def list_attempts(conn: Connection, *, run: uuid.UUID, part: int) -> list[AttemptRow]:
    """Return a run's failed attempts, first to last."""
    return [
        AttemptRow(
            attempt=attempt,
            started_at=to_millis(started),
            finished_at=to_millis(finished),
            reason=reason,
            error=error,
            worker=worker,
            fence=fence,
            log=log,
        )
        for attempt, started, finished, reason, error, worker, fence, log in _SQL[
            "list_attempts"
        ].run(conn, {"run": run, "part": part})
    ]


def read_log(conn: Connection, *, run: uuid.UUID, part: int) -> str | None:
    """Return what a run that is over logged last, where no failed attempt has it."""
    for (log,) in _SQL["read_log"].run(conn, {"run": run, "part": part}):
        return str(log)
    return None


def list_runs(
    conn: Connection,
    *,
    tenant: int,
    low: uuid.UUID,
    high: uuid.UUID,
    limit: int,
    final: bool,
    states: Sequence[int] | None,
    resolved: Sequence[int],
    running: bool,
    parked: bool,
    ready: bool,
    kinds: Sequence[int],
    queue: str | None,
    job: uuid.UUID | None,
    reason: int | None,
) -> list[RunRow]:
    """Return a tenant's runs with low <= id < high, the highest id first.

    ``final`` with ``states`` (None for all), ``resolved`` verdicts, ``running``,
    ``parked``, ``ready`` and the timer ``kinds`` say which tables are looked at. Only
    what is over, parked or blocked has a reason to ask for.
    """
    rows = _SQL["list_runs"].run(
        conn,
        {
            "tenant": tenant,
            "low": low,
            "high": high,
            "limit": limit,
            "final": final,
            "states": None if states is None else list(states),
            "resolved": list(resolved),
            "running": running,
            "parked": parked,
            "ready": ready,
            "kinds": list(kinds),
            "queue": queue,
            "job": job,
            "reason": reason,
        },
    )
    return [_run_row(row) for row in rows]


def list_job_runs(
    conn: Connection,
    *,
    tenant: int,
    job: uuid.UUID,
    part: int,
    since: Millis,
    before: JobRunKey,
    limit: int,
) -> list[tuple[RunRow, JobRunKey]]:
    """Return a job's occurrences from ``since`` to before a key, newest first."""
    rows = _SQL["list_job_runs"].run(
        conn,
        {
            "tenant": tenant,
            "job": job,
            "part": part,
            "from": since,
            "until": before.scheduled_for,
            "group": before.attempt_group,
            "limit": limit,
        },
    )
    return [
        (
            _run_row(row[:19]),
            JobRunKey(scheduled_for=to_millis(row[19]), attempt_group=row[20]),
        )
        for row in rows
    ]


def keep_runs(conn: Connection, *, leaf: str) -> int:
    """Copy a day's runs that were no success to ``chrono_run_kept``."""
    return _SQL["keep_runs"].change(conn, leaf=leaf)


def keep_attempts(conn: Connection, *, leaf: str) -> int:
    """Copy a day's attempts whose run is kept to ``chrono_attempt_kept``."""
    return _SQL["keep_attempts"].change(conn, leaf=leaf)


def has_backfill(
    conn: Connection, *, start: Millis, end: Millis, since: Millis
) -> bool:
    """Return whether a backfill made since an instant reaches into [start, end)."""
    [(there,)] = _SQL["has_backfill"].run(
        conn, {"start": start, "end": end, "since": since}
    )
    return bool(there)


def read_last_write(conn: Connection, *, leaf: str) -> Millis | None:
    """Return when the last rows of a day leaf were written, None if it has none."""
    [(written,)] = _SQL["read_last_write"].run(conn, leaf=leaf)
    return to_millis_if_any(written)


def purge_runs_kept(conn: Connection, *, before: Millis, limit: int) -> int:
    """Delete kept runs that finished before an instant; return how many."""
    return _SQL["purge_runs_kept"].change(conn, {"before": before, "limit": limit})


def purge_attempts_kept(conn: Connection, *, before: Millis, limit: int) -> int:
    """Delete kept attempts that finished before an instant; return how many."""
    return _SQL["purge_attempts_kept"].change(conn, {"before": before, "limit": limit})


def purge_dead_letters(conn: Connection, *, before: Millis, limit: int) -> int:
    """Delete dead letters that died before an instant; return how many."""
    return _SQL["purge_dead_letters"].change(conn, {"before": before, "limit": limit})


def _run_row(row: tuple[Any, ...]) -> RunRow:
    place, kind, cancel, state, reason, due, dispatched, started, finished = row[:9]
    run, job, revision, part, fence, priority, attempt, queue, worker, key = row[9:19]
    return RunRow(
        id=run,
        job_id=job,
        job_key=key,
        revision=revision,
        part=part,
        place=place or "",
        kind=kind,
        cancel=bool(cancel),
        state=state,
        reason=reason,
        due_at=to_millis_if_any(due),
        dispatched_at=to_millis_if_any(dispatched),
        started_at=to_millis_if_any(started),
        finished_at=to_millis_if_any(finished),
        fence=fence,
        priority=priority,
        attempt=attempt,
        queue=queue,
        worker=worker,
    )


def _read(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _json(value: Any) -> Jsonb | None:
    return None if value is None else Jsonb(value)


def _places(runs: Sequence[tuple[int, uuid.UUID]]) -> dict[str, Any]:
    return {"parts": [part for part, _ in runs], "runs": [run for _, run in runs]}
