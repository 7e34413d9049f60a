"""Create, change, pause, resume, skip, delete and restore jobs.

Everything an edit does, it does under two locks, taken in this order: the rows of its
jobs by id, then the rows of their partitions by id, whose epoch it raises. The second
waits for a fire in flight and makes every later one look again, so what the ledger
says after it holds until the commit. The edit's instant is read after it, too. What
deletes or restores jobs takes the rows of their tenants' counts between the two: a
create holds one until it commits, and no partition shall wait for that.

Each command is a transaction of its own, so success means that the change is on disk,
unless the caller opened one with :func:`apps.runtime.django_session.enclose`: then it
is once that ends. Every changed job leaves one row in the audit, in the same
transaction. A job of a tenant that the actor does not see is not found.

``now`` replaces the database's clock in tests and nowhere else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from apps.jobs import store
from apps.jobs.definition import Definition
from apps.jobs.editing import (
    Change,
    Created,
    Edit,
    Outcome,
    Written,
    carry_out,
    compare,
    create,
    new_id,
)
from apps.jobs.errors import JobDeleted, JobNotFound, KeyTaken
from apps.jobs.json_value import check_note
from apps.jobs.planning import Timer
from apps.jobs.public import audited
from apps.jobs.quotas import check_payload, check_room, read_terms
from apps.jobs.selectors import read_decisions
from apps.jobs.store import Terms
from apps.jobs.transactions import Open, open_change
from apps.runs import store as runs
from apps.runtime.sessions import Connection
from apps.tenants import audit
from apps.tenants.actor import Actor, Scope
from apps.tenants.errors import TenantNotFound
from apps.tenants.event import Event
from apps.timers.store import FAR, NEAR, TIMERS
from chrono.rules.errors import BadValue
from chrono.rules.instants import DAY, Millis, checked, format_instant
from chrono.rules.states import Reason

TENANT = 1
COMMAND = Actor.command("chrono")
BATCH = 500
"""How many jobs a transaction edits at most: its partitions wait for it."""
COUNTED = 10_000
"""How many missed occurrences a transaction counts one by one, over all its jobs."""
MOST_TIMERS = 10_000
"""How many timers the edits of a transaction write at most, if there are several."""
LEAST_COUNTED = 100
HISTORY: Millis = 6 * DAY
"""A run older than this may have left the history with its day."""
LONGEST_SKIP = 100
LONGEST_NOTE = 1_000

_VERBS = {
    "changed": "change",
    "paused": "pause",
    "resumed": "resume",
    "skipped": "skip_next",
    "deleted": "delete",
    "restored": "restore",
    "replanned": "replan",
}


class _TooManyTimers(Exception):
    """The edits of a transaction left more late occurrences than one shall write."""

    def __init__(self, fit: int) -> None:
        super().__init__()
        self.fit = fit
        """So many of the first edits are not too much; one at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pausing:
    """A job to be paused, as it was when that was decided."""

    job_id: UUID
    changes: int
    """The number of its last change."""
    note: str


def create_job(
    definition: Definition,
    *,
    tenant: int | None = None,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> Outcome:
    """Create a job and plan its first occurrence.

    The tenant is the actor's, or the default one; a cron that names no time zone gets
    the tenant's. Raises Forbidden, TenantNotFound, KeyTaken, QuotaExceeded, JobsBusy,
    or BadValue for a `run_at` more than a day back.
    """
    [outcome] = create_jobs(
        [definition], tenant=tenant, actor=actor, reason=reason, now=now
    )
    return outcome


def create_jobs(
    definitions: Sequence[Definition],
    *,
    made: Sequence[Created] = (),
    tenant: int | None = None,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> list[Outcome]:
    """Create jobs, 500 a transaction; see :func:`create_job`.

    ``made`` are the same jobs for this tenant by this actor, planned a moment ago;
    where it is left out, they are planned in the transaction. Where one is refused its
    whole transaction is; earlier ones stay.
    """
    actor.require(Scope.WRITE)
    reason = check_note(reason, field="reason", most=LONGEST_NOTE)
    tenant = tenant_of(actor, tenant)
    outcomes: list[Outcome] = []
    for begin in range(0, len(definitions), BATCH):
        with open_change() as opened:
            outcomes += _create(
                opened,
                definitions[begin : begin + BATCH],
                made[begin : begin + BATCH],
                tenant=tenant,
                actor=actor,
                reason=reason,
                now=now,
            )
    return outcomes


def change_job(
    job_id: UUID,
    definition: Definition,
    *,
    if_match: int | None = None,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> Outcome:
    """Give a job a new definition, whole; where nothing differs, do nothing.

    Another schedule or jitter window begins a new plan; what the old one left open up
    to now is decided first. Anything else is a new revision of the same plan. A cron
    that names no time zone keeps the one that the job has. Raises Forbidden,
    JobNotFound, VersionConflict, QuotaExceeded for another payload, JobsBusy, or
    BadValue for another key or a `run_at` that is over.
    """
    edit = Edit(
        job_id=job_id,
        definition=definition,
        paused=definition.paused,
        by=actor.name,
        if_match=if_match,
    )
    [outcome] = edit_jobs([edit], actor=actor, reason=reason, now=now)
    return outcome


def patch_job(
    job_id: UUID,
    patch: Mapping[str, Any],
    *,
    if_match: int | None = None,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> Outcome:
    """Change the fields of a job's definition that a merge patch names.

    ``if_match`` is the `changes` that the job must have. Raises what
    :func:`change_job` and :func:`apps.jobs.patching.patched` raise.
    """
    edit = Edit(job_id=job_id, patch=patch, by=actor.name, if_match=if_match)
    [outcome] = edit_jobs([edit], actor=actor, reason=reason, now=now)
    return outcome


def pause_job(
    job_id: UUID,
    *,
    note: str = "",
    until: Millis | None = None,
    if_match: int | None = None,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> Outcome:
    """End a job's planning until it is resumed; no run of its schedule follows.

    What was due and not yet fired is recorded as skipped. At ``until`` it is resumed as
    if by hand. A paused job gets the note and the end of its pause anew, if one of them
    is given. Raises Forbidden, JobNotFound, VersionConflict, JobsBusy, or BadValue for
    an ``until`` that is over.
    """
    [outcome] = pause_jobs(
        [job_id],
        note=note,
        until=until,
        if_match=if_match,
        actor=actor,
        reason=reason,
        now=now,
    )
    return outcome


def pause_jobs(
    job_ids: Sequence[UUID],
    *,
    note: str = "",
    until: Millis | None = None,
    if_match: int | None = None,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> list[Outcome]:
    """Pause jobs, 500 a transaction, each once; see :func:`pause_job`."""
    if until is not None:
        checked(until, field="until")
    note = check_note(note, field="note", most=LONGEST_NOTE)
    edits = [
        Edit(
            job_id=job,
            paused=True,
            note=note,
            until=until,
            by=actor.name,
            if_match=if_match,
        )
        for job in dict.fromkeys(job_ids)
    ]
    return edit_jobs(edits, actor=actor, reason=reason or note, now=now)


def resume_job(
    job_id: UUID,
    *,
    if_match: int | None = None,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> Outcome:
    """Plan a paused job from now on.

    Raises Forbidden, JobNotFound, VersionConflict, JobsBusy.
    """
    edit = Edit(job_id=job_id, paused=False, if_match=if_match)
    [outcome] = edit_jobs([edit], actor=actor, reason=reason, now=now)
    return outcome


def resume_jobs(
    job_ids: Sequence[UUID],
    *,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> list[Outcome]:
    """Resume jobs, 500 a transaction; see :func:`resume_job`."""
    edits = [Edit(job_id=job, paused=False) for job in dict.fromkeys(job_ids)]
    return edit_jobs(edits, actor=actor, reason=reason, now=now)


def resume_due(
    conn: Connection, *, actor: Actor, now: Millis | None = None
) -> list[Outcome]:
    """Resume the jobs whose pause is over, as of the instant at which it was to end.

    However late this comes, no occurrence after that instant is lost. ``conn`` is an
    autocommit session; at most 500 jobs a call. Raises JobsBusy.
    """
    ended = store.list_ended_pauses(conn, now=now, limit=BATCH)
    if not ended:
        return []
    return _edit_if(
        [Edit(job_id=job, paused=False, until=until) for job, until in ended],
        _lives,
        conn=conn,
        actor=actor,
        reason="The pause is over.",
        now=now,
    )


def take_back(
    conn: Connection, *, actor: Actor, now: Millis | None = None
) -> list[Outcome]:
    """Plan the jobs anew to which skipped late occurrences gave runs back.

    ``conn`` is an autocommit session; at most 500 jobs a call. Raises JobsBusy.
    """
    given = store.list_given_back(conn, limit=BATCH)
    if not given:
        return []
    return _edit_if(
        [Edit(job_id=job, replan=True) for job in given],
        _lives,
        conn=conn,
        actor=actor,
        reason="Late occurrences that were skipped gave their runs back.",
        now=now,
    )


def pause_if_unchanged(
    conn: Connection,
    pausing: Sequence[Pausing],
    *,
    actor: Actor,
    reason: str,
    now: Millis | None = None,
) -> list[Outcome]:
    """Pause those of these jobs that nobody has changed, paused or deleted meanwhile.

    ``conn`` is an autocommit session; at most 500 jobs a call. Raises JobsBusy.
    """
    edits = [
        Edit(job_id=one.job_id, paused=True, note=one.note, by=actor.name)
        for one in pausing
    ]
    judged = {one.job_id: one.changes for one in pausing}
    return _edit_if(
        edits,
        lambda job: job.changes == judged[job.id],
        conn=conn,
        actor=actor,
        reason=reason,
        now=now,
    )


def skip_next(
    job_id: UUID,
    *,
    count: int = 1,
    if_match: int | None = None,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> Outcome:
    """Skip a job's next occurrences; the outcome names them.

    They are decided now: nothing is planned before the last of them any more, by
    whatever schedule. Raises Forbidden, JobNotFound, VersionConflict, NothingToSkip,
    JobsBusy, or BadValue for a count that is not 1 to 100.
    """
    if type(count) is not int or not 1 <= count <= LONGEST_SKIP:
        raise BadValue(
            f"count is a whole number from 1 to {LONGEST_SKIP}.", field="count"
        )
    edit = Edit(job_id=job_id, skip=count, if_match=if_match)
    [outcome] = edit_jobs([edit], actor=actor, reason=reason, now=now)
    return outcome


def delete_job(
    job_id: UUID,
    *,
    if_match: int | None = None,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> Outcome:
    """Delete a job: its history stays, its key is free, its waiting runs are cancelled.

    Runs that are ready already are cancelled by the worker that claims them. Deleting a
    deleted job does nothing. Raises Forbidden, JobNotFound, VersionConflict, JobsBusy.
    """
    edit = Edit(job_id=job_id, deleted=True, if_match=if_match)
    [outcome] = edit_jobs([edit], actor=actor, reason=reason, now=now)
    return outcome


def delete_jobs(
    job_ids: Sequence[UUID],
    *,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> list[Outcome]:
    """Delete jobs, 500 a transaction; see :func:`delete_job`."""
    edits = [Edit(job_id=job, deleted=True) for job in dict.fromkeys(job_ids)]
    return edit_jobs(edits, actor=actor, reason=reason, now=now)


def restore_job(
    job_id: UUID,
    *,
    if_match: int | None = None,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> Outcome:
    """Bring a deleted job back, paused.

    Raises Forbidden, JobNotFound, JobNotDeleted, VersionConflict, QuotaExceeded,
    JobsBusy, or KeyTaken where another job has its key by now.
    """
    edit = Edit(job_id=job_id, restored=True, by=actor.name, if_match=if_match)
    [outcome] = edit_jobs([edit], actor=actor, reason=reason, now=now)
    return outcome


def replan_jobs(
    jobs: Mapping[UUID, int],
    *,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> list[Outcome]:
    """Plan jobs anew, by the rules of their time zones as they are now.

    At most 500, each with the number of its last change; who has changed since is left
    out. Raises Forbidden, JobsBusy.
    """
    actor.require(Scope.WRITE)
    return _edit_if(
        [Edit(job_id=job, replan=True) for job in jobs],
        lambda job: job.changes == jobs[job.id],
        tenant=actor.tenant,
        actor=actor,
        reason=reason,
        now=now,
    )


def edit_jobs(
    edits: Sequence[Edit],
    *,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> list[Outcome]:
    """Edit jobs, at most 500 a transaction; return what became of each, in order.

    Fewer where they leave many late occurrences: 10,000 a transaction. A job is there
    once at most. Where one is refused its whole transaction is; earlier ones stay.
    Raises what the single commands raise.
    """
    actor.require(Scope.WRITE)
    reason = check_note(reason, field="reason", most=LONGEST_NOTE)
    return _edit_if(
        edits, None, tenant=actor.tenant, actor=actor, reason=reason, now=now
    )


def tenant_of(actor: Actor, tenant: int | None) -> int:
    """Return for which tenant an actor makes something.

    Raises TenantNotFound for one that the actor does not see.
    """
    if tenant is None:
        return TENANT if actor.tenant is None else actor.tenant
    if not actor.sees(tenant):
        raise TenantNotFound
    return tenant


def lock_living(opened: Open, job_id: UUID, actor: Actor) -> store.Job:
    """Lock a job that the actor sees and return it. Raises JobNotFound, JobDeleted."""
    found = _lock(opened.conn, [Edit(job_id=job_id)], tenant=actor.tenant)
    if job_id not in found:
        raise JobNotFound(f"There is no job {job_id}.")
    if found[job_id].deleted_at is not None:
        raise JobDeleted(f"The job {job_id} is deleted; restore it first.")
    return found[job_id]


def _create(
    opened: Open,
    definitions: Sequence[Definition],
    made: Sequence[Created],
    *,
    tenant: int,
    actor: Actor,
    reason: str,
    now: Millis | None,
) -> list[Outcome]:
    conn = opened.conn
    terms = read_terms(conn, tenant=tenant)
    check_room(terms, more=len(definitions))
    for definition in definitions:
        check_payload(terms, definition.payload)
    now = terms.instant.now if now is None else now
    if not made:
        made = [
            create(
                definition.in_zone(terms.timezone),
                job_id=new_id(now),
                now=now,
                tenant=tenant,
                by=actor.name,
            )
            for definition in definitions
        ]
    if terms.jobs is not None:
        # As a restore does, before anything waits for its key: else each could have
        # what the other waits for.
        store.lock_counts(conn, tenants=[tenant])
    # An interval counts from the creation: that is the instant it was planned at.
    now = made[0].after.created_at
    inserted = store.insert_jobs(
        conn, jobs=[new.job for new in made], tenant=tenant, now=now
    )
    for new in made:
        if new.job.id not in inserted:
            raise KeyTaken(f"Another job has the key {new.job.key}.", field="key")
    _check_count(conn, [tenant])
    store.insert_revisions(
        conn, revisions=[(new.job.id, 1, new.revision) for new in made], now=now
    )
    insert_near_or_far(
        conn, [timer for new in made for timer in new.timers], terms.instant.horizon
    )
    events = [
        Event(
            tenant=tenant,
            action="job.create",
            object_kind="job",
            object_id=str(new.job.id),
            after=audited(new.after),
            reason=reason,
        )
        for new in made
    ]
    audit.record(conn, actor=actor, events=events)
    opened.parts |= {new.job.part for new in made}
    return [_created(new) for new in made]


def _check_count(conn: Connection, tenants: Iterable[int]) -> None:
    """Raise QuotaExceeded where a tenant has too many jobs with those just written.

    From here to the commit nobody else adds one to a tenant with a quota. The terms are
    read anew even where there was no quota before: the write may have waited for one.
    """
    for tenant in tenants:
        check_room(read_terms(conn, tenant=tenant))


def _created(new: Created) -> Outcome:
    return Outcome(
        job_id=new.job.id, key=new.job.key, actions=("created",), version=1, revision=1
    )


def _lock(
    conn: Connection, edits: Sequence[Edit], *, tenant: int | None
) -> dict[UUID, store.Job]:
    """Lock the jobs of these edits, then read them as they are."""
    ids = [edit.job_id for edit in edits]
    store.lock_jobs(conn, jobs=ids, tenant=tenant)
    return {job.id: job for job in store.load_jobs(conn, jobs=ids, tenant=tenant)}


def _lives(job: store.Job) -> bool:
    return job.deleted_at is None


def _edit_if(
    edits: Sequence[Edit],
    wanted: Callable[[store.Job], bool] | None,
    *,
    conn: Connection | None = None,
    tenant: int | None = None,
    actor: Actor,
    reason: str,
    now: Millis | None,
) -> list[Outcome]:
    """Edit the jobs that are there and wanted as they are; None: all, or JobNotFound.

    Transaction by transaction: while one is open, its partitions fire nothing.
    """
    outcomes: list[Outcome] = []
    begin, size = 0, BATCH
    while batch := edits[begin : begin + size]:
        try:
            with open_change(conn) as opened:
                found = _lock(opened.conn, batch, tenant=tenant)
                here = [
                    edit
                    for edit in batch
                    if wanted is None
                    or (edit.job_id in found and wanted(found[edit.job_id]))
                ]
                done = _edit(opened, here, found, actor=actor, reason=reason, now=now)
        except _TooManyTimers as error:
            size = error.fit
            continue
        outcomes += done
        begin, size = begin + len(batch), BATCH
    return outcomes


def _edit(
    opened: Open,
    edits: Sequence[Edit],
    jobs: Mapping[UUID, store.Job],
    *,
    actor: Actor,
    reason: str,
    now: Millis | None,
) -> list[Outcome]:
    for edit in edits:
        if edit.job_id not in jobs:
            raise JobNotFound(f"There is no job {edit.job_id}.")
    asking = {
        jobs[edit.job_id].tenant for edit in edits if edit.defines or edit.restored
    }
    terms = {one: read_terms(opened.conn, tenant=one) for one in sorted(asking)}
    changes = [
        compare(job, edit.met(job, timezone=_timezone(terms.get(job.tenant))))
        for edit, job in ((edit, jobs[edit.job_id]) for edit in edits)
    ]
    for change in changes:
        if change.definition is not None and change.refilled:
            check_payload(terms[change.job.tenant], change.definition.payload)
    effective = [change for change in changes if change.actions]
    skipped: dict[UUID, tuple[Millis, ...]] = {}
    if effective:
        written = _write(opened.conn, effective, actor=actor, reason=reason, now=now)
        restored = {one.job.tenant for one in effective if one.edit.restored}
        _check_count(opened.conn, sorted(restored))
        skipped = {rows.job.id: rows.skipped for rows in written if rows.skipped}
        opened.parts |= {change.job.part for change in effective}
    return [
        replace(change.outcome(), skipped=skipped.get(change.job.id, ()))
        for change in changes
    ]


def _timezone(terms: Terms | None) -> str:
    return "UTC" if terms is None else terms.timezone


def _write(
    conn: Connection,
    changes: Sequence[Change],
    *,
    actor: Actor,
    reason: str,
    now: Millis | None,
) -> list[Written]:
    jobs = [change.job for change in changes]
    counted = {
        change.job.tenant
        for change in changes
        if change.edit.deleted or change.edit.restored
    }
    if counted:
        store.lock_counts(conn, tenants=sorted(counted))
    epochs = store.bump_epochs(conn, parts=[job.part for job in jobs])
    instant = store.read_instant(conn)
    now = instant.now if now is None else now
    decided = read_decisions(conn, jobs, now=now)
    written: list[Written] = []
    timers = 0
    for change in changes:
        rows = carry_out(
            change,
            epoch=epochs[change.job.part],
            decided=decided[change.job.id],
            now=now,
            limit=max(LEAST_COUNTED, COUNTED // len(changes)),
        )
        timers += len(rows.timers)
        if written and timers > MOST_TIMERS:
            raise _TooManyTimers(len(written))
        written.append(rows)
    _write_rows(conn, written, now, instant.horizon)
    _keep_ends(conn, changes, written)
    _count_live(conn, [change for change in changes if change.needs_slots], now)
    _settle_deleted(conn, [change for change in changes if change.edit.deleted])
    events = [
        _event(change, rows, reason)
        for change, rows in zip(changes, written, strict=True)
    ]
    audit.record(conn, actor=actor, events=events)
    return written


def _event(change: Change, rows: Written, reason: str) -> Event:
    after = audited(rows.after, change.job)
    if rows.skipped:
        after["skipped"] = [format_instant(moment) for moment in rows.skipped]
    return Event(
        tenant=change.job.tenant,
        action=f"job.{_VERBS[change.actions[0]]}",
        object_kind="job",
        object_id=str(change.job.id),
        before=audited(change.job),
        after=None if change.edit.deleted else after,
        reason=reason,
    )


def _write_rows(
    conn: Connection, written: Sequence[Written], now: Millis, horizon: Millis
) -> None:
    store.update_jobs(conn, jobs=[rows.job for rows in written], now=now)
    revisions = [
        (rows.job.id, rows.job.revision, rows.revision)
        for rows in written
        if rows.revision is not None
    ]
    if revisions:
        store.insert_revisions(conn, revisions=revisions, now=now)
    insert_near_or_far(
        conn, [timer for rows in written for timer in rows.timers], horizon
    )
    skips = [skip for rows in written for skip in rows.skips]
    if skips:
        store.insert_skips(conn, skips=skips)


def _keep_ends(
    conn: Connection, changes: Sequence[Change], written: Sequence[Written]
) -> None:
    """Keep what is left of a number of runs where no timer keeps it any more."""
    planned = [
        rows
        for change, rows in zip(changes, written, strict=True)
        if change.replanned
        and {change.job.remaining_runs, rows.job.remaining_runs} != {None}
    ]
    if planned:
        store.keep_plan_ends(
            conn,
            jobs=[rows.job for rows in planned],
            over={rows.job.id for rows in planned if rows.over},
        )


def insert_near_or_far(
    conn: Connection, timers: Sequence[Timer], horizon: Millis
) -> None:
    """Write timers, each where it belongs: with those below the horizon, or beyond."""
    near = [timer for timer in timers if timer.due_at < horizon]
    far = [timer for timer in timers if timer.due_at >= horizon]
    if near:
        store.insert_timers(conn, timers=near, table=NEAR)
    if far:
        store.insert_timers(conn, timers=far, table=FAR)


def _count_live(conn: Connection, bounded: Sequence[Change], now: Millis) -> None:
    """Have what runs of jobs count against a bound that they have from now on."""
    if bounded:
        runs.insert_slots_of_live(
            conn,
            jobs=[(change.job.part, change.job.id) for change in bounded],
            since=now - HISTORY,
            most=max(LEAST_COUNTED, COUNTED // len(bounded)),
        )


def _settle_deleted(conn: Connection, deleted: Sequence[Change]) -> None:
    if not deleted:
        return
    jobs = [change.job.id for change in deleted]
    parts = sorted({change.job.part for change in deleted})
    for timers in TIMERS:
        runs.cancel_timed_of_jobs(
            conn, jobs=jobs, parts=parts, reason=Reason.DELETED, timers=timers
        )
    runs.cancel_blocked_of_jobs(conn, jobs=jobs, parts=parts, reason=Reason.DELETED)
