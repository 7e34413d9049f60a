"""Make jobs what a list of definitions says: by key, and only where they differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import batched
from typing import TypedDict
from uuid import UUID

from apps.jobs import store
from apps.jobs.commands import BATCH, COMMAND, create_jobs, edit_jobs, tenant_of
from apps.jobs.definition import Definition
from apps.jobs.editing import (
    Created,
    Edit,
    Outcome,
    check_run_at,
    compare,
    create,
    new_id,
)
from apps.jobs.errors import JobNotFound, JobsBusy, KeyTaken, VersionConflict
from apps.jobs.quotas import check_payload, check_room, read_terms
from apps.runtime.django_session import raw_connection
from apps.tenants.actor import Actor, Scope
from chrono.rules.errors import BadValue, ChronoError
from chrono.rules.instants import Millis

TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """In a list to apply: the job of this key shall not exist."""

    key: str


type Wanted = Definition | Removal


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What applying one entry would do, as things stood when they were looked at."""

    outcome: Outcome
    made: Created | None = None
    """The new job, where it would make one."""


def apply(
    wanted: Sequence[Wanted],
    *,
    tenant: int | None = None,
    dry_run: bool = False,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> list[Outcome]:
    """Make the jobs with these keys what is wanted: create, change, pause, delete.

    Returns what became of each, in order. What is right already is left alone and
    costs its partition nothing. Everything is checked before anything is changed;
    a refusal is a BadValue whose message begins with the key, and QuotaExceeded where
    there is no room for what would be created: what is deleted by the same list gives
    its room later. Raises Forbidden, TenantNotFound, JobsBusy, too.
    """
    actor.require(Scope.WRITE)
    tenant = tenant_of(actor, tenant)
    _check_keys(wanted)
    planned = [
        outcome
        for batch in batched(wanted, BATCH)
        for outcome in _planned(batch, tenant, now)
    ]
    created = sum(outcome.actions == ("created",) for outcome in planned)
    if created:
        check_room(read_terms(raw_connection(), tenant=tenant), more=created)
    if dry_run:
        return planned
    outcomes: list[Outcome] = []
    for batch in batched(zip(wanted, planned, strict=True), BATCH):
        outcomes += _apply(
            [entry for entry, _ in batch],
            [Look(outcome=done) for _, done in batch],
            tenant=tenant,
            actor=actor,
            reason=reason,
            now=now,
        )
    return outcomes


def apply_each(
    wanted: Sequence[Definition | ChronoError],
    *,
    tenant: int | None = None,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> list[Outcome | ChronoError]:
    """Make the jobs with these keys what is wanted, each for itself.

    Returns what became of each, in order, or why it was refused, which keeps no other
    back; of JobsBusy it is not known whether it was done. What is refused already is in
    the list as its error. Raises Forbidden and TenantNotFound.
    """
    actor.require(Scope.WRITE)
    tenant = tenant_of(actor, tenant)
    by: _By = {"tenant": tenant, "actor": actor, "reason": reason, "now": now}
    found: dict[int, Outcome | ChronoError] = {}
    well: list[tuple[int, Definition]] = []
    seen: set[str] = set()
    for n, entry in enumerate(wanted):
        if isinstance(entry, ChronoError):
            found[n] = entry
        elif entry.key in seen:
            found[n] = BadValue("The key is there twice.", field="key")
        else:
            seen.add(entry.key)
            well.append((n, entry))
    for batch in batched(well, BATCH):
        entries = [entry for _, entry in batch]
        looked = _look(entries, tenant, now, by=actor.name)
        planned = []
        for (n, entry), one in zip(batch, looked, strict=True):
            if isinstance(one, Look):
                planned.append((n, entry, one))
            else:
                found[n] = one
        done = _apply_or_put([(entry, one) for _, entry, one in planned], by)
        found |= zip((n for n, _, _ in planned), done, strict=True)
    return [found[n] for n in range(len(wanted))]


class _By(TypedDict):
    tenant: int
    actor: Actor
    reason: str
    now: Millis | None


def _apply_or_put(
    planned: Sequence[tuple[Definition, Look]], by: _By
) -> Sequence[Outcome | ChronoError]:
    """Carry out what was planned: all together, or else one by one."""
    try:
        return _apply(
            [entry for entry, _ in planned], [one for _, one in planned], **by
        )
    except JobsBusy as error:
        return [error] * len(planned)
    except ChronoError:
        return [_put(entry, by) for entry, _ in planned]


def _put(definition: Definition, by: _By) -> Outcome | ChronoError:
    try:
        return put_job(definition, **by)
    except ChronoError as error:
        return error


def put_job(
    definition: Definition,
    *,
    if_match: int | None = None,
    tenant: int | None = None,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> Outcome:
    """Make the job with the definition's key what it says: created, changed, or left.

    With ``if_match`` it must be there, at this number of `changes`. Raises what
    :func:`apps.jobs.commands.create_job` and :func:`apps.jobs.commands.change_job` do.
    """
    tenant = tenant_of(actor, tenant)
    for tries_left in reversed(range(TRIES)):
        found = store.find_jobs(raw_connection(), tenant=tenant, keys=[definition.key])
        try:
            if definition.key in found:
                edit = Edit(
                    job_id=found[definition.key],
                    definition=definition,
                    paused=definition.paused,
                    by=actor.name,
                    if_match=if_match,
                )
                [outcome] = edit_jobs([edit], actor=actor, reason=reason, now=now)
                return outcome
            if if_match is not None:
                raise VersionConflict(
                    f"There is no job with the key {definition.key}.", field="If-Match"
                )
            [outcome] = create_jobs(
                [definition], tenant=tenant, actor=actor, reason=reason, now=now
            )
            return outcome
        except (KeyTaken, JobNotFound):
            # Somebody made or deleted it in between.
            if not tries_left:
                raise
    raise AssertionError("the last try returns or raises")


def _apply(
    wanted: Sequence[Wanted],
    looked: Sequence[Look],
    *,
    tenant: int,
    actor: Actor,
    reason: str,
    now: Millis | None,
) -> list[Outcome]:
    """Carry out what was planned; plan anew where somebody took a key in between."""
    for tries_left in reversed(range(TRIES)):
        new = [
            entry
            for entry, one in zip(wanted, looked, strict=True)
            if isinstance(entry, Definition) and one.outcome.job_id is None
        ]
        edits = [
            _edit_of(entry, one.outcome.job_id)
            for entry, one in zip(wanted, looked, strict=True)
            if one.outcome.job_id is not None and one.outcome.actions != ("unchanged",)
        ]
        try:
            created = create_jobs(
                new,
                made=[one.made for one in looked if one.made is not None],
                tenant=tenant,
                actor=actor,
                reason=reason,
                now=now,
            )
        except KeyTaken:
            if not tries_left:
                raise
            planned = _planned(wanted, tenant, now)
            looked = [Look(outcome=outcome) for outcome in planned]
            continue
        done = {outcome.key: outcome for outcome in created}
        edited = edit_jobs(edits, actor=actor, reason=reason, now=now)
        done |= {outcome.key: outcome for outcome in edited}
        return [done.get(one.outcome.key, one.outcome) for one in looked]
    raise AssertionError("the last try returns or raises")


def _planned(
    wanted: Sequence[Wanted], tenant: int, now: Millis | None
) -> list[Outcome]:
    """Return what applying would do; raises the first refusal, its key in front."""
    planned = []
    for entry, one in zip(wanted, _look(wanted, tenant, now), strict=True):
        if isinstance(one, BadValue):
            raise type(one)(f"{entry.key}: {one.message}", field=one.field)
        planned.append(one.outcome)
    return planned


def _look(
    wanted: Sequence[Wanted], tenant: int, now: Millis | None, *, by: str = ""
) -> list[Look | BadValue]:
    """Return what applying would do or why not, from one look without locks.

    New jobs are made ``by`` somebody.
    """
    conn = raw_connection()
    ids = store.find_jobs(conn, tenant=tenant, keys=[entry.key for entry in wanted])
    found = store.load_jobs(conn, jobs=list(ids.values())) if ids else []
    jobs = {job.key: job for job in found if job.deleted_at is None}
    terms = read_terms(conn, tenant=tenant)
    now = terms.instant.now if now is None else now
    looked: list[Look | BadValue] = []
    for entry in wanted:
        job = jobs.get(entry.key)
        made = None
        try:
            if job is not None:
                edit = _edit_of(entry, job.id).met(job, timezone=terms.timezone)
                change = compare(job, edit)
                check_run_at(change, now=now)
                if change.definition is not None and change.refilled:
                    check_payload(terms, change.definition.payload)
                looked.append(Look(outcome=change.outcome()))
                continue
            if isinstance(entry, Definition):
                check_payload(terms, entry.payload)
                made = create(
                    entry.in_zone(terms.timezone),
                    job_id=new_id(now),
                    now=now,
                    tenant=tenant,
                    by=by,
                )
        except BadValue as error:
            looked.append(error)
            continue
        action = "unchanged" if made is None else "created"
        outcome = Outcome(
            job_id=None, key=entry.key, actions=(action,), version=1, revision=1
        )
        looked.append(Look(outcome=outcome, made=made))
    return looked


def _edit_of(entry: Wanted, job_id: UUID) -> Edit:
    if isinstance(entry, Removal):
        return Edit(job_id=job_id, deleted=True)
    return Edit(job_id=job_id, definition=entry, paused=entry.paused)


def _check_keys(wanted: Sequence[Wanted]) -> None:
    seen: set[str] = set()
    for entry in wanted:
        if entry.key in seen:
            raise BadValue(f"{entry.key}: the key is there twice.", field="key")
        seen.add(entry.key)
