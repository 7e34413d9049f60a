"""Run occurrences of the past: those of a range, each once, in the catch-up lane.

A backfill decides nothing of the schedule: its runs take attempt groups of their own,
and the plan goes on untouched. It goes by the schedule in force now.
"""

import secrets
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, get_args
from uuid import UUID

from apps.jobs import store
from apps.jobs.commands import COMMAND, LONGEST_NOTE, lock_living
from apps.jobs.editing import schedule_of
from apps.jobs.errors import BackfillTooLarge, JobNotFound
from apps.jobs.json_value import check_note
from apps.jobs.planning import LEDGER_KEPT, last_decided
from apps.jobs.selectors import read_decisions
from apps.jobs.store import Job, NewBackfill, PastRun
from apps.jobs.transactions import Open, open_change
from apps.runs import days
from apps.runtime.django_session import raw_connection
from apps.tenants import audit
from apps.tenants.actor import Actor, Scope
from apps.tenants.event import Event
from chrono.rules.errors import BadValue
from chrono.rules.instants import SECOND, Millis, checked, format_instant
from chrono.rules.keys import run_id, uuid7
from chrono.rules.schedule import FixedDelay, occurrences
from chrono.rules.states import RunState

type Order = Literal["oldest", "newest"]
type Reprocess = Literal["none", "failed", "completed"]

MOST_OCCURRENCES = 10_000
MOST_RATE = 1_000
_FAILED = frozenset({RunState.DEAD, RunState.FAILED, RunState.UNKNOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What is to be run of a job's past, checked; [start, end) of nominal instants."""

    start: Millis
    end: Millis
    order: Order = "oldest"
    reprocess: Reprocess = "none"
    """Of occurrences that have a run: none, those whose last run failed, or those
    whose last run is over."""
    rate: int | None = None
    """How many begin a second at most; the lane has a rate of its own, besides."""

    def __post_init__(self) -> None:
        checked(self.start, field="from")
        checked(self.end, field="to")
        if self.start >= self.end:
            raise BadValue("to lies after from.", field="to")
        _check_choice(self.order, Order, "order")
        _check_choice(self.reprocess, Reprocess, "reprocess")
        if self.rate is not None and not (
            type(self.rate) is int and 1 <= self.rate <= MOST_RATE
        ):
            raise BadValue(
                f"rate is a whole number from 1 to {MOST_RATE}.", field="rate"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """What a backfill makes, or would."""

    id: UUID | None
    """None for a dry run, and where there is nothing to run."""
    revision: int
    """The revision whose schedule and payload it uses."""
    occurrences: tuple[Millis, ...]
    """What runs, in its order."""
    passed_over: int
    """How many occurrences of the range have a run already that is not repeated."""


def backfill_job(
    job_id: UUID,
    wanted: Range,
    *,
    dry_run: bool = False,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> Backfill:
    """Run the occurrences of a range that is over, each once.

    A run that is live is never doubled. The range ends at the last occurrence decided,
    and begins no earlier than the ledger, 30 days back: what is older, nobody can say
    whether it ran. Raises Forbidden, JobNotFound, JobDeleted, BackfillTooLarge,
    JobsBusy, or BadValue for a range that the ledger does not cover.
    """
    actor.require(Scope.OPERATE)
    reason = check_note(reason, field="reason", most=LONGEST_NOTE)
    with open_change() as opened:
        job = lock_living(opened, job_id, actor)
        moment = store.read_instant(opened.conn).now if now is None else now
        chosen = _choose(opened, job, wanted, moment)
        if dry_run or not chosen.runs:
            return _answer(None, job, chosen)
        days.ensure_range(opened.conn, start=wanted.start, end=wanted.end)
        made = uuid7(moment, secrets.token_bytes(10))
        _write(opened, job, wanted, chosen, made, actor, reason, moment)
        return _answer(made, job, chosen)


def cancel_backfill(
    job_id: UUID, backfill: UUID, *, actor: Actor = COMMAND, reason: str = ""
) -> int:
    """Call off the runs of a backfill that still wait; return how many.

    What has begun goes on. Raises Forbidden, JobNotFound (for the backfill, too),
    JobsBusy.
    """
    actor.require(Scope.OPERATE)
    reason = check_note(reason, field="reason", most=LONGEST_NOTE)
    with open_change() as opened:
        job = lock_living(opened, job_id, actor)
        if not store.list_backfills(
            opened.conn, job=job_id, backfill=backfill, limit=1
        ):
            raise JobNotFound(f"The job has no backfill {backfill}.")
        count = store.cancel_backfill(
            opened.conn, job=job_id, backfill=backfill, by=actor.name
        )
        event = Event(
            tenant=job.tenant,
            action="job.backfill_cancel",
            object_kind="job",
            object_id=str(job.id),
            after={"backfill_id": str(backfill), "cancelled": count},
            reason=reason,
        )
        audit.record(opened.conn, actor=actor, events=[event])
        return count


def list_backfills(
    job_id: UUID, *, actor: Actor, before: UUID | None = None, limit: int
) -> list[store.BackfillRow]:
    """Return a job's backfills, newest first. Raises JobNotFound."""
    conn = raw_connection()
    if not store.load_jobs(conn, jobs=[job_id], tenant=actor.tenant):
        raise JobNotFound(f"There is no job {job_id}.")
    return store.list_backfills(conn, job=job_id, before=before, limit=limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    runs: tuple[tuple[Millis, int], ...]
    """Instants and attempt groups, in order."""
    passed_over: int


def _choose(opened: Open, job: Job, wanted: Range, now: Millis) -> _Chosen:
    schedule = schedule_of(job.definition)
    if isinstance(schedule, FixedDelay):
        raise BadValue(
            "A fixed_delay counts from the end of a run: it has no past occurrences.",
            field="from",
        )
    [decided] = read_decisions(opened.conn, [job], now=now).values()
    known = last_decided(
        ledger=decided.scheduled_for, activated_at=job.activated_at, now=now
    )
    if wanted.start < now - LEDGER_KEPT:
        earliest = format_instant((now - LEDGER_KEPT) // SECOND * SECOND + SECOND)
        raise BadValue(
            f"from is {earliest} at the earliest: of what is older, nobody can say "
            "whether it ran.",
            field="from",
        )
    if wanted.end > now:
        raise BadValue(
            "to lies in the future; what is to come, the schedule runs.", field="to"
        )
    last = min(wanted.end - 1, known)
    moments = list(
        islice(occurrences(schedule, wanted.start - 1, last), MOST_OCCURRENCES + 1)
    )
    if len(moments) > MOST_OCCURRENCES:
        raise BackfillTooLarge(field="to")
    past = store.list_past(opened.conn, job=job, start=wanted.start, end=last + 1)
    before: defaultdict[Millis, list[PastRun]] = defaultdict(list)
    for run in past:
        before[run.scheduled_for].append(run)
    runs = [
        (moment, _next_group(before[moment]))
        for moment in moments
        if _is_wanted(before[moment], wanted.reprocess)
    ]
    if wanted.order == "newest":
        runs.reverse()
    return _Chosen(runs=tuple(runs), passed_over=len(moments) - len(runs))


def _is_wanted(runs: Sequence[PastRun], reprocess: Reprocess) -> bool:
    runs = [run for run in runs if run.made]
    if not runs:
        return True
    if reprocess == "none" or any(run.state is None for run in runs):
        return False
    last = runs[-1]
    return reprocess == "completed" or last.state in _FAILED


def _next_group(runs: Sequence[PastRun]) -> int:
    """Return the next attempt group; group 0 is the schedule's, fired or not."""
    return 1 + max((run.attempt_group for run in runs), default=0)


def _write(
    opened: Open,
    job: Job,
    wanted: Range,
    chosen: _Chosen,
    made: UUID,
    actor: Actor,
    reason: str,
    now: Millis,
) -> None:
    apart = 1 if wanted.rate is None else SECOND // wanted.rate
    store.insert_backfill(
        opened.conn,
        job=job,
        backfill=NewBackfill(
            id=made,
            start=wanted.start,
            end=wanted.end,
            by=actor.name,
            scheduled_for=[moment for moment, _ in chosen.runs],
            due_at=[now + n * apart for n in range(len(chosen.runs))],
            groups=[group for _, group in chosen.runs],
            runs=[
                run_id(job.id, moment, group, job.part) for moment, group in chosen.runs
            ],
        ),
        now=now,
    )
    event = Event(
        tenant=job.tenant,
        action="job.backfill",
        object_kind="job",
        object_id=str(job.id),
        after={
            "backfill_id": str(made),
            "from": format_instant(wanted.start),
            "to": format_instant(wanted.end),
            "order": wanted.order,
            "reprocess": wanted.reprocess,
            "runs": len(chosen.runs),
        },
        reason=reason,
    )
    audit.record(opened.conn, actor=actor, events=[event])
    opened.parts.add(job.part)


def _answer(made: UUID | None, job: Job, chosen: _Chosen) -> Backfill:
    return Backfill(
        id=made,
        revision=job.revision,
        occurrences=tuple(moment for moment, _ in chosen.runs),
        passed_over=chosen.passed_over,
    )


def _check_choice(value: object, choices: object, field: str) -> None:
    names = get_args(choices.__value__)  # type: ignore[attr-defined]
    if value not in names:
        raise BadValue(f"{field} is one of {', '.join(names)}.", field=field)
