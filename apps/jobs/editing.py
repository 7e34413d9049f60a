"""What one edit makes of one job: decisions between reading and writing.

First `compare` says whether the edit changes anything, from the job alone; then, under
the partition's lock, `carry_out` says what is written.
"""

import secrets
from dataclasses import dataclass, replace
from uuid import UUID

from apps.jobs.definition import Definition
from apps.jobs.json_value import same_json
from apps.jobs.planning import (
    Plan,
    Skip,
    Timer,
    catch_up,
    last_decided,
    plan_next,
    skip_past,
    start_of_plan,
)
from apps.jobs.store import ChangedJob, Decided, Job, NewJob, Revision
from chrono.rules.errors import BadValue
from chrono.rules.instants import Millis
from chrono.rules.keys import uuid7
from chrono.rules.partitions import partition_of
from chrono.rules.schedule import Once, Schedule, schedule_from_json
from chrono.rules.states import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What shall become of a job; what is left out stays as it is."""

    job_id: UUID
    definition: Definition | None = None
    paused: bool | None = None
    note: str = ""
    """Why it is paused."""
    deleted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a job."""

    job_id: UUID | None
    """None where a dry run would create it."""
    key: str
    actions: tuple[str, ...]
    """Some of created, changed, paused, resumed, deleted; or unchanged alone."""
    version: int
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An edit beside the job it meets: what of the job it changes."""

    job: Job
    edit: Edit
    definition: Revision | None
    """The new revision, if one is made."""
    renamed: bool
    rescheduled: bool
    replanned: bool
    """Whether the plan changes: schedule or jitter, pause, resume, delete."""
    paused: bool

    @property
    def actions(self) -> tuple[str, ...]:
        """Return what is done, in the words of an outcome; empty for nothing."""
        if self.edit.deleted:
            return ("deleted",)
        done = ["changed"] if self.definition is not None or self.renamed else []
        if self.paused != self.job.paused:
            done.append("paused" if self.paused else "resumed")
        return tuple(done)

    def outcome(self) -> Outcome:
        """Return what the caller is told of it."""
        return Outcome(
            job_id=self.job.id,
            key=self.job.key,
            actions=self.actions or ("unchanged",),
            version=self.job.version + self.replanned,
            revision=self.job.revision + (self.definition is not None),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The rows of one created or edited job."""

    job: ChangedJob
    revision: Revision | None
    timers: list[Timer]
    skips: list[Skip]


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """The rows of one new job."""

    job: NewJob
    revision: Revision
    timers: list[Timer]


def compare(job: Job, edit: Edit) -> Change:
    """Return what an edit changes of a job.

    Raises BadValue for a definition with another key.
    """
    paused = job.paused if edit.paused is None else edit.paused
    new, renamed = None, False
    if edit.definition is not None:
        if edit.definition.key != job.key:
            raise BadValue("The key of a job does not change.", field="key")
        new = to_revision(edit.definition, job.id, created_at=job.created_at)
        renamed = edit.definition.name != job.name
        if _same(new, job.definition):
            new = None
    rescheduled = new is not None and schedule_of(new) != schedule_of(job.definition)
    jitter_changed = (
        new is not None and new.jitter_window != job.definition.jitter_window
    )
    return Change(
        job=job,
        edit=edit,
        definition=new,
        renamed=renamed,
        rescheduled=rescheduled,
        replanned=(
            rescheduled or jitter_changed or paused != job.paused or edit.deleted
        ),
        paused=paused,
    )


def check_run_at(change: Change, *, now: Millis) -> None:
    """Raise BadValue where a job is moved to a single instant that is over."""
    if not change.rescheduled or change.definition is None:
        return
    schedule = schedule_of(change.definition)
    if isinstance(schedule, Once) and schedule.at <= now:
        raise BadValue("A changed run_at lies in the future.", field="run_at")


def carry_out(
    change: Change, *, epoch: int, decided: Decided, now: Millis, limit: int
) -> Written:
    """Return what an edit writes; the job's partition is locked since before ``now``.

    ``limit`` bounds how many occurrences are counted one by one.
    Raises BadValue where a job is moved to a single instant that is over.
    """
    check_run_at(change, now=now)
    job, edit = change.job, change.edit
    old = _plan(job, job.definition, job.version, job.revision)
    known = last_decided(
        ledger=decided.scheduled_for, activated_at=job.activated_at, now=now
    )
    timers: list[Timer] = []
    skips: list[Skip] = []
    version = job.version + change.replanned
    revision = job.revision + (change.definition is not None)
    activated_at = job.activated_at
    if change.replanned:
        activated_at = max(now, known)
        if not job.paused:
            timers, skips = _decide_past(change, old, known, now, limit)
        if not change.paused and not edit.deleted:
            plan = _plan(job, change.definition or job.definition, version, revision)
            following = plan_next(
                plan, after=activated_at, now=now, prev=decided.last_run
            )
            timers += [] if following is None else [following]
    return Written(
        job=ChangedJob(
            id=job.id,
            name=edit.definition.name if edit.definition is not None else job.name,
            version=version,
            revision=revision,
            epoch=epoch,
            activated_at=activated_at,
            paused=change.paused,
            pause_note=_note(change),
            deleted=edit.deleted,
        ),
        revision=change.definition,
        timers=timers,
        skips=skips,
    )


def create(definition: Definition, *, job_id: UUID, now: Millis) -> Created:
    """Return the rows of a new job.

    A single instant that lies up to a day back runs at once. Raises BadValue for one
    that lies further back.
    """
    part = partition_of(job_id)
    new = to_revision(definition, job_id, created_at=now)
    schedule = schedule_of(new)
    start = start_of_plan(schedule, now=now)
    if start is None:
        raise BadValue("run_at lies more than a day back.", field="run_at")
    plan = Plan(
        job_id=job_id,
        part=part,
        version=1,
        revision=1,
        schedule=schedule,
        jitter_window=new.jitter_window,
    )
    paused = bool(definition.paused)
    first = None if paused else plan_next(plan, after=start, now=now, prev=None)
    return Created(
        job=NewJob(
            id=job_id,
            part=part,
            key=definition.key,
            name=definition.name,
            activated_at=start,
            paused=paused,
        ),
        revision=new,
        timers=[] if first is None else [first],
    )


def new_id(now: Millis) -> UUID:
    """Return an id for a new job; ids sort by the time they were made."""
    return uuid7(now, secrets.token_bytes(10))


def to_revision(
    definition: Definition, job_id: UUID, *, created_at: Millis
) -> Revision:
    """Return the definition as the row of this job's revision."""
    return Revision(
        schedule=definition.schedule_json(job_id, created_at=created_at),
        jitter_window=definition.jitter_window,
        overlap_policy=definition.overlap_policy,
        queue=definition.queue,
        priority=definition.priority,
        target=definition.target,
        payload=definition.payload,
        retry_policy=definition.retry_policy,
    )


def schedule_of(revision: Revision) -> Schedule:
    """Return the schedule of a revision as a value."""
    return schedule_from_json(revision.schedule)


def _decide_past(
    change: Change, old: Plan, known: Millis, now: Millis, limit: int
) -> tuple[list[Timer], list[Skip]]:
    if change.edit.deleted:
        reason = Reason.ENDED
    elif change.paused:
        reason = Reason.PAUSED
    else:
        return catch_up(old, decided=known, now=now, limit=limit)
    return [], skip_past(old, decided=known, now=now, reason=reason, limit=limit)


def _note(change: Change) -> str:
    if not change.paused:
        return ""
    return change.job.pause_note if change.job.paused else change.edit.note


def _plan(job: Job, definition: Revision, version: int, revision: int) -> Plan:
    return Plan(
        job_id=job.id,
        part=job.part,
        version=version,
        revision=revision,
        schedule=schedule_of(definition),
        jitter_window=definition.jitter_window,
    )


def _same(new: Revision, old: Revision) -> bool:
    """Return whether two revisions mean the same; how H was written does not count."""
    return (
        schedule_of(new) == schedule_of(old)
        and same_json(new.payload, old.payload)
        and same_json(new.target, old.target)
        and same_json(new.retry_policy, old.retry_policy)
        and replace(new, schedule={}, payload=None, target={}, retry_policy={})
        == replace(old, schedule={}, payload=None, target={}, retry_policy={})
    )
