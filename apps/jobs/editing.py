"""What one edit makes of one job: decisions between reading and writing.

First `compare` says whether the edit changes anything, from the job alone; then, under
the partition's lock, `carry_out` says what is written.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from uuid import UUID

from apps.jobs.definition import Definition
from apps.jobs.errors import (
    JobDeleted,
    JobNotDeleted,
    NothingToSkip,
    VersionConflict,
)
from apps.jobs.json_value import same_json
from apps.jobs.patching import patched
from apps.jobs.planning import (
    Plan,
    Skip,
    Timer,
    catch_up,
    last_decided,
    moved_by_zone,
    plan_next,
    skip_next,
    skip_past,
    start_of_plan,
)
from apps.jobs.store import ChangedJob, Decided, Job, NewJob, Revision
from chrono.rules import policy
from chrono.rules.cron import check_zone
from chrono.rules.errors import BadValue, ChronoError, UnknownTimezone
from chrono.rules.instants import Millis
from chrono.rules.key_template import filled, has_holes
from chrono.rules.keys import uuid7
from chrono.rules.overlap import Check, check
from chrono.rules.partitions import partition_of
from chrono.rules.policy import Policy, overlap_from_name
from chrono.rules.schedule import Once, Schedule, kind_of, schedule_from_json
from chrono.rules.states import Reason

_PLAIN = tuple(
    field.name
    for field in fields(Revision)
    if field.name not in ("schedule", "target", "payload", "retry_policy", "policy")
)
"""What of a revision is no JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What shall become of a job; what is left out stays as it is."""

    job_id: UUID
    definition: Definition | None = None
    patch: Mapping[str, Any] | None = None
    """A merge patch over the job's own definition, in place of a whole one."""
    paused: bool | None = None
    note: str = ""
    """Why it is paused."""
    until: Millis | None = None
    """When the pause is over. To resume with it ends a pause until then alone, and the
    plan goes on from that instant."""
    by: str = ""
    """Who pauses it."""
    skip: int = 0
    """How many of its next occurrences are skipped."""
    deleted: bool = False
    restored: bool = False
    replan: bool = False
    """Plan by the rules of its time zone as they are now."""
    if_match: int | None = None
    """The `changes` that the job must have."""

    @property
    def defines(self) -> bool:
        """Return whether it gives the job a definition."""
        return self.definition is not None or self.patch is not None

    def met(self, job: Job, *, timezone: str) -> "Edit":
        """Return the edit with its patch carried out on the job as it is.

        A cron that names no time zone keeps the job's own; where the job has none, or
        a patch takes it away, it is read in ``timezone``.
        """
        if self.definition is not None:
            zone = _own_zone(job) or timezone
            return replace(self, definition=self.definition.in_zone(zone))
        if self.patch is None:
            return self
        definition = patched(job, self.patch).in_zone(timezone)
        named = self.patch.get("paused") is not None
        return replace(
            self,
            patch=None,
            definition=definition,
            paused=definition.paused if named else self.paused,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a job."""

    job_id: UUID | None
    """None where a dry run would create it."""
    key: str
    actions: tuple[str, ...]
    """Some of created, changed, paused, resumed, skipped, deleted, restored,
    replanned; or unchanged alone."""
    version: int
    """The planning version."""
    revision: int
    changes: int = 1
    """Rises with every change: what an ETag names."""
    skipped: tuple[Millis, ...] = ()
    """The occurrences that are skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An edit beside the job it meets: what of the job it changes."""

    job: Job
    edit: Edit
    definition: Revision | None
    """The new revision, if one is made."""
    relabelled: bool
    """Whether its name or its tags change: what no revision has."""
    rescheduled: bool
    replanned: bool
    """Whether the plan changes: schedule or jitter, pause, resume, skip, delete, or
    the rules of its time zone."""
    paused: bool
    repaused: bool
    """Whether a paused job gets another note or end of its pause."""

    @property
    def refilled(self) -> bool:
        """Return whether the job gets another payload."""
        if self.definition is None:
            return False
        return not same_json(self.definition.payload, self.job.definition.payload)

    @property
    def needs_slots(self) -> bool:
        """Return whether live runs have to count from now on that did not before."""
        if self.definition is None:
            return False
        try:
            before = check_of(self.job.definition)
        except ChronoError:
            before = Check.NOTHING
        now = check_of(self.definition)
        return now is not Check.NOTHING and now is not before

    @property
    def actions(self) -> tuple[str, ...]:
        """Return what is done, in the words of an outcome; empty for nothing."""
        if self.edit.deleted:
            return () if self.job.deleted_at is not None else ("deleted",)
        if self.edit.restored:
            return ("restored",)
        if self.edit.replan:
            return ("replanned",)
        done = ["changed"] if self.definition is not None or self.relabelled else []
        if self.paused != self.job.paused or self.repaused:
            done.append("paused" if self.paused else "resumed")
        if self.edit.skip:
            done.append("skipped")
        return tuple(done)

    def outcome(self) -> Outcome:
        """Return what the caller is told of it, but for what is skipped."""
        return Outcome(
            job_id=self.job.id,
            key=self.job.key,
            actions=self.actions or ("unchanged",),
            version=self.job.version + self.replanned,
            revision=self.job.revision + (self.definition is not None),
            changes=self.job.changes + bool(self.actions),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The rows of one created or edited job."""

    job: ChangedJob
    after: Job
    """How the job is then."""
    revision: Revision | None
    timers: list[Timer]
    skips: list[Skip]
    skipped: tuple[Millis, ...]
    """What is skipped of the occurrences to come."""
    over: bool
    """Whether the new plan has no occurrence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """The rows of one new job."""

    job: NewJob
    after: Job
    revision: Revision
    timers: list[Timer]


def compare(job: Job, edit: Edit) -> Change:
    """Return what an edit changes of a job; its patch is carried out already.

    Raises BadValue for a definition with another key, VersionConflict, JobDeleted,
    JobNotDeleted.
    """
    _check_version(job, edit)
    if job.deleted_at is not None and not (edit.deleted or edit.restored):
        raise JobDeleted(f"The job {job.id} is deleted; restore it first.")
    if job.deleted_at is None and edit.restored:
        raise JobNotDeleted
    paused = _paused(job, edit)
    new, relabelled = None, False
    if edit.definition is not None:
        if edit.definition.key != job.key:
            raise BadValue("The key of a job does not change.", field="key")
        new = to_revision(edit.definition, job.id, created_at=job.created_at)
        relabelled = (edit.definition.name, edit.definition.tags) != (
            job.name,
            job.tags,
        )
        if _same(new, job.definition):
            new = None
    rescheduled = new is not None and _readable(new) != _readable(job.definition)
    jitter_changed = (
        new is not None and new.jitter_window != job.definition.jitter_window
    )
    return Change(
        job=job,
        edit=edit,
        definition=new,
        relabelled=relabelled,
        rescheduled=rescheduled,
        replanned=(
            rescheduled
            or jitter_changed
            or (new is not None and _limit(new) != _limit(job.definition))
            or paused != job.paused
            or bool(edit.skip)
            or edit.restored
            or edit.replan
            or (edit.deleted and job.deleted_at is None)
        ),
        paused=paused,
        repaused=(
            paused
            and job.paused
            and edit.paused is True
            and bool(edit.note or edit.until is not None)
            and (edit.note, edit.until) != (job.pause_note, job.paused_until)
        ),
    )


def _own_zone(job: Job) -> str | None:
    """Return the time zone of a job's cron, None where it has none that is known."""
    own = job.definition.schedule.get("timezone")
    if own is None:
        return None
    try:
        check_zone(str(own))
    except UnknownTimezone:
        return None
    return str(own)


def _check_version(job: Job, edit: Edit) -> None:
    if edit.if_match is not None and edit.if_match != job.changes:
        raise VersionConflict(
            f"The job is at version {job.changes} by now, not {edit.if_match}: read it "
            "again, then change it.",
            field="If-Match",
        )


def _paused(job: Job, edit: Edit) -> bool:
    if edit.restored:
        return True
    if edit.paused is False and edit.until is not None:
        return job.paused and job.paused_until != edit.until
    return job.paused if edit.paused is None else edit.paused


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

    ``limit`` bounds how many occurrences are counted one by one. Raises BadValue where
    a job is moved to a single instant that is over or paused until one, NothingToSkip.
    """
    check_run_at(change, now=now)
    job, edit = change.job, change.edit
    if change.paused and edit.until is not None and edit.until <= now:
        raise BadValue("A pause ends in the future.", field="until")
    activated_at = job.activated_at
    left = _left(change, decided)
    timers: list[Timer] = []
    skips: list[Skip] = []
    skipped: list[Skip] = []
    over = False
    if change.replanned:
        known = last_decided(
            ledger=decided.scheduled_for, activated_at=activated_at, now=now
        )
        if edit.replan:
            known = max(known, _moved(job, decided) or 0)
        activated_at = max(_instant(change, now), known)
        if job.deleted_at is None:
            timers, skips = _decide_past(change, known, now, limit)
        if edit.skip:
            skipped = _skip(change, after=activated_at)
            activated_at = skipped[-1].scheduled_for
        if left is not None:
            timers = [replace(timer, remaining=1) for timer in timers[:left]]
            left -= len(timers)
        if not change.paused and not edit.deleted:
            following = plan_next(
                _new_plan(change),
                after=activated_at,
                now=now,
                prev=decided.last_run,
                remaining=left,
            )
            timers += [] if following is None else [following]
            over = following is None
    after = replace(_after(change, activated_at, now), remaining_runs=left)
    return Written(
        job=ChangedJob(
            id=job.id,
            name=after.name,
            tags=after.tags,
            version=after.version,
            revision=after.revision,
            epoch=epoch,
            activated_at=activated_at,
            paused=after.paused,
            pause_note=after.pause_note,
            paused_until=after.paused_until,
            paused_by=after.paused_by,
            deleted=after.deleted_at is not None,
            remaining_runs=left,
        ),
        after=after,
        revision=change.definition,
        timers=timers,
        skips=skips + skipped,
        skipped=tuple(skip.scheduled_for for skip in skipped),
        over=over,
    )


def _instant(change: Change, now: Millis) -> Millis:
    """Return from when the new plan decides: a pause that is over ended at its end."""
    until = change.edit.until
    return now if change.paused or until is None else until


def _moved(job: Job, decided: Decided) -> Millis | None:
    return moved_by_zone(
        schedule_of(job.definition),
        ledger=decided.scheduled_for,
        activated_at=job.activated_at,
    )


def _skip(change: Change, *, after: Millis) -> list[Skip]:
    skipped = skip_next(_new_plan(change), after=after, count=change.edit.skip)
    if change.paused or not skipped:
        raise NothingToSkip
    return skipped


def _left(change: Change, decided: Decided) -> int | None:
    """Return how many runs of the schedule are left, before what is decided now.

    Where no plan begins, the number that the job's row has stays: a timer has the rest.
    """
    job = change.job
    if not change.replanned:
        return job.remaining_runs
    limit = _limit(change.definition or job.definition)
    changed = limit != _limit(job.definition)
    return limit if limit is None or changed else decided.remaining


def _limit(revision: Revision) -> int | None:
    """Return how many runs a revision gives its schedule; None for any number."""
    try:
        return policy_of(revision).remaining_runs
    except ChronoError:
        return None


def _new_plan(change: Change) -> Plan:
    job = change.job
    return _plan(
        job,
        change.definition or job.definition,
        job.version + change.replanned,
        job.revision + (change.definition is not None),
    )


def _after(change: Change, activated_at: Millis, now: Millis) -> Job:
    job, edit = change.job, change.edit
    begun = change.paused and (
        change.repaused or not job.paused or change.edit.restored
    )
    kept = job if change.paused and not begun else None
    return replace(
        job,
        name=job.name if edit.definition is None else edit.definition.name,
        tags=job.tags if edit.definition is None else edit.definition.tags,
        version=job.version + change.replanned,
        revision=job.revision + (change.definition is not None),
        changes=job.changes + 1,
        activated_at=activated_at,
        paused=change.paused,
        pause_note=edit.note if begun else kept.pause_note if kept else "",
        paused_until=edit.until if begun else kept.paused_until if kept else None,
        paused_by=edit.by if begun else kept.paused_by if kept else "",
        updated_at=now,
        deleted_at=now if edit.deleted else None,
        definition=change.definition or job.definition,
    )


def create(
    definition: Definition,
    *,
    job_id: UUID,
    now: Millis,
    tenant: int = 1,
    by: str = "",
) -> Created:
    """Return the rows of a new job of a tenant, made ``by`` somebody.

    A single instant that lies up to a day back runs at once. Raises BadValue for one
    that lies further back.
    """
    part = partition_of(job_id)
    new = to_revision(definition, job_id, created_at=now)
    schedule = definition.schedule_of(job_id, created_at=now)
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
        policy=definition.policy,
    )
    paused = bool(definition.paused)
    limit = definition.policy.remaining_runs
    first = plan_next(plan, after=start, now=now, prev=None, remaining=limit)
    if first is None:
        field = "ends_at" if "ends_at" in new.schedule else kind_of(new.schedule)
        raise BadValue("It is over before it begins.", field=field)
    after = Job(
        id=job_id,
        tenant=tenant,
        part=part,
        key=definition.key,
        name=definition.name,
        tags=definition.tags,
        version=1,
        revision=1,
        changes=1,
        paused=paused,
        pause_note="",
        paused_until=None,
        paused_by=by if paused else "",
        activated_at=start,
        created_at=now,
        updated_at=now,
        deleted_at=None,
        remaining_runs=limit,
        definition=new,
    )
    return Created(
        after=after,
        job=NewJob(
            id=job_id,
            part=part,
            key=definition.key,
            name=definition.name,
            tags=definition.tags,
            activated_at=start,
            paused=paused,
            paused_by=after.paused_by,
            remaining_runs=limit,
        ),
        revision=new,
        timers=[] if paused else [first],
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
        policy=_policy_json(definition),
    )


def key_of(revision: Revision, payload: Any) -> str | None:
    """Return the concurrency key of a run with this payload, where that fills it.

    None where all runs of the revision have the same. Raises BadValue for a payload
    that does not fill it.
    """
    if policy.FILLED_KEY not in revision.policy:
        return None
    return filled(revision.policy["concurrency_key"], payload, field="payload")


def _policy_json(definition: Definition) -> dict[str, Any]:
    """Return the policies; with the key that the job's own payload fills, if it does.

    So whoever fires reads no payload.
    """
    fields = policy.to_json(definition.policy)
    key = definition.policy.concurrency_key
    if key is not None and has_holes(key):
        fields[policy.FILLED_KEY] = filled(
            key, definition.payload, field="concurrency_key"
        )
    return fields


def schedule_of(revision: Revision) -> Schedule:
    """Return the schedule of a revision as a value."""
    return schedule_from_json(revision.schedule)


def policy_of(revision: Revision) -> Policy:
    """Return the further policies of a revision as a value."""
    return policy.from_json(revision.policy)


def check_of(revision: Revision) -> Check:
    """Return how much has to be known before a run of a revision is made."""
    if isinstance(schedule_of(revision), Once):
        return Check.NOTHING
    overlap = overlap_from_name(revision.overlap_policy)
    return check(overlap, policy_of(revision).max_concurrent_runs)


def _readable(revision: Revision) -> Schedule | None:
    """Return the schedule of a revision, None where it cannot be read."""
    try:
        return schedule_of(revision)
    except ChronoError:
        return None


def _decide_past(
    change: Change, known: Millis, now: Millis, limit: int
) -> tuple[list[Timer], list[Skip]]:
    """Return what becomes of the old plan's occurrences up to now.

    A schedule that cannot be read has none: such a job can be mended and deleted.
    """
    job = change.job
    try:
        old = _plan(job, job.definition, job.version, job.revision)
        if not (job.paused or change.paused or change.edit.deleted):
            return catch_up(old, decided=known, now=now, limit=limit)
        paused = job.paused or not change.edit.deleted
        return [], skip_past(
            old,
            decided=known,
            now=_instant(change, now) if job.paused else now,
            reason=Reason.PAUSED if paused else Reason.ENDED,
            limit=limit,
        )
    except ChronoError:
        return [], []


def _plan(job: Job, definition: Revision, version: int, revision: int) -> Plan:
    return Plan(
        job_id=job.id,
        part=job.part,
        version=version,
        revision=revision,
        schedule=schedule_of(definition),
        jitter_window=definition.jitter_window,
        policy=policy_of(definition),
    )


def _same(new: Revision, old: Revision) -> bool:
    """Return whether two revisions mean the same; how H was written does not count."""
    return (
        (same_json(new.schedule, old.schedule) or _readable(new) == _readable(old))
        and same_json(new.payload, old.payload)
        and same_json(new.target, old.target)
        and same_json(new.retry_policy, old.retry_policy)
        and same_json(new.policy, old.policy)
        and all(getattr(new, name) == getattr(old, name) for name in _PLAIN)
    )
