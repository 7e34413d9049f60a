"""What an audit makes of what it read: of a job's ledger, of fences, of timers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from apps.jobs.audit_checks import TOLD, Told
from apps.jobs.audit_store import NO_GROUP, JobRow, LedgerRow, PlannedJob, Side
from chrono.rules.instants import DAY, LATEST, Millis, format_instant
from chrono.rules.ledger import (
    Comparison,
    Decision,
    Fault,
    Plan,
    Schedule,
    first_after,
)
from chrono.rules.oracle import Unreadable, is_predictable

LEAST_COUNTED = 100
"""An edit counts so many occurrences of a stretch at least, then says `at least`."""

type Schedules = Mapping[tuple[UUID, int], Schedule]
"""The schedules of revisions, by job and number."""


class Trial:
    """A job beside its ledger, as far as it was read."""

    def __init__(
        self, job: JobRow, sides: Mapping[int, Side], schedules: Schedules
    ) -> None:
        self.job = job
        self.after = (job.decided, NO_GROUP)
        """The instant and attempt group of the last row read."""
        self.undecided: list[Fault] = []
        """Occurrences without a decision; each may still wait in a timer."""
        self.schedules: dict[int, Schedule] = {job.revision: job.schedule}
        self.learn(schedules)
        self._faults = 0
        self._comparison = Comparison(
            self._plans(sides),
            since=job.decided,
            schedule_of=lambda revision: self.schedules.get(revision, {}),
        )

    def learn(self, schedules: Schedules) -> None:
        """Take note of schedules, those of this job among them."""
        for (job, revision), schedule in schedules.items():
            if job == self.job.id:
                self.schedules[revision] = schedule

    def hear(self, row: LedgerRow) -> Iterator[Told]:
        """Yield what is wrong with the next row, and take note of what is undecided."""
        count = row.occurrences or 1
        decision = Decision(
            first=row.scheduled_for,
            last=row.last_for or row.scheduled_for,
            fired=row.fired,
            count=count,
            exact=row.fence > 0 or count < LEAST_COUNTED,
            ahead=row.operator and row.fence == 0,
            version=row.version,
            revision=row.revision,
        )
        yield from self._told(self._comparison.hear(decision))

    def finish(self) -> Iterator[Told]:
        """Yield what is wrong when no row follows."""
        yield from self._told(self._comparison.finish())

    def _told(self, faults: Iterator[Fault]) -> Iterator[Told]:
        if self._faults >= TOLD:
            return  # It was left in the middle of what is wrong with it.
        subject = f"job {self.job.id}"
        try:
            for fault in faults:
                self._faults += 1
                if fault.undecided:
                    self.undecided.append(fault)
                else:
                    yield "decisions", subject, fault.detail
                if self._faults >= TOLD:
                    return
        except Unreadable as error:
            self._faults = TOLD
            yield "decisions", subject, f"has a schedule that cannot be read: {error}"

    def _plans(self, sides: Mapping[int, Side]) -> list[Plan]:
        job = self.job
        plans = [
            Plan(
                version=version,
                begins=side.begins,
                schedule=(schedule := self.schedules.get(side.revision, {})),
                stopped=side.stopped,
                may_end_early=is_limited(schedule),
                other_rules=side.other_rules,
            )
            for version, side in sorted(sides.items())
            if version < job.version
        ]
        in_force = Plan(
            version=job.version,
            begins=job.activated_at,
            schedule=job.schedule,
            stopped=job.stopped,
        )
        return [*plans, in_force]


@dataclass(slots=True)
class Reign:
    """When rows of one fence were written, the first and the last, in microseconds."""

    first: int = 1 << 62
    last: int = 0
    job: UUID | None = None
    """Whose row was the last."""


class Fences:
    """The fences of the partitions, in the order in which their rows were written."""

    def __init__(self) -> None:
        self._reigns: dict[tuple[int, int], Reign] = {}

    def hear(self, part: int, row: LedgerRow, job: UUID) -> None:
        """Take note of a row that a leader wrote."""
        reign = self._reigns.setdefault((part, row.fence), Reign())
        reign.first = min(reign.first, row.stamp)
        if row.stamp > reign.last:
            reign.last, reign.job = row.stamp, job

    def fallen(self) -> Iterator[Told]:
        """Yield where a row of a fence was written after one of a higher fence."""
        higher: tuple[int, int, int] | None = None
        for (part, fence), reign in sorted(self._reigns.items(), reverse=True):
            if higher is None or higher[0] != part:
                higher = part, fence, reign.first
            elif reign.last > higher[2]:
                moment = format_instant(reign.last // 1000)
                said = f"has a row of job {reign.job} with fence {fence}, of {moment}"
                yield (
                    "fences",
                    f"partition {part}",
                    f"{said}, after the first with fence {higher[1]}",
                )
            if reign.first < higher[2]:
                higher = part, fence, reign.first


def is_limited(schedule: Schedule) -> bool:
    """Return whether a schedule has a number of runs, after which it is over."""
    return schedule.get("remaining_runs") is not None


def judge_plan(job: PlannedJob, now: Millis) -> Iterator[Told]:
    """Yield what is wrong with a job's timers."""
    subject = f"job {job.id}"
    if job.stopped:
        if job.timers:
            yield "plans", subject, f"is paused or deleted and has {job.timers} timers"
        return
    try:
        following = _following(job)
    except Unreadable as error:
        yield "plans", subject, f"has a schedule that cannot be read: {error}"
        return
    if job.timers > 1 or (job.timers == 0 and not _may_be_over(job, following)):
        yield "plans", subject, f"has {job.timers} timers"
    elif job.scheduled_for is not None and job.due_at is not None:
        yield from _judge_timer(job, job.scheduled_for, job.due_at, following, now)


def _may_be_over(job: PlannedJob, following: Millis | None) -> bool:
    if is_limited(job.schedule):
        return True
    if is_predictable(job.schedule):
        return following is None
    return job.schedule.get("ends_at") is not None


def _judge_timer(
    job: PlannedJob,
    scheduled_for: Millis,
    due_at: Millis,
    following: Millis | None,
    now: Millis,
) -> Iterator[Told]:
    subject, planned = f"job {job.id}", format_instant(scheduled_for)
    if following is None and is_predictable(job.schedule):
        yield "plans", subject, f"is planned for {planned}, after its schedule's end"
    elif following is not None and scheduled_for != following:
        first = format_instant(following)
        yield "plans", subject, f"is planned for {planned}, where {first} comes first"
    due = scheduled_for + _offset(job.id, job.jitter_window)
    # What was planned late may be due later than that, but nothing that is to come.
    if due_at < due or due_at > due > now:
        said = f"is due at {format_instant(due_at)}, not {format_instant(due)}"
        yield "jitter", subject, said


def _following(job: PlannedJob) -> Millis | None:
    """Return the first undecided occurrence, where the schedule has and tells one."""
    if not is_predictable(job.schedule):
        return None
    following = first_after(job.schedule, job.decided)
    return None if following is None or following >= LATEST - DAY else following


def _offset(job: UUID, window: Millis) -> Millis:
    """Return a job's jitter, worked out apart from the rule that plans with it."""
    return int(sha256(job.bytes).hexdigest(), 16) % window if window else 0
