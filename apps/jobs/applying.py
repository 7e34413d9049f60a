"""Make jobs what a list of definitions says: by key, and only where they differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import batched
from uuid import UUID

from apps.jobs import store
from apps.jobs.commands import BATCH, TENANT, create_jobs, edit_jobs
from apps.jobs.definition import Definition
from apps.jobs.editing import Edit, Outcome, check_run_at, compare, create, new_id
from apps.jobs.errors import KeyTaken
from apps.runtime.django_session import raw_connection
from chrono.rules.errors import BadValue
from chrono.rules.instants import Millis

TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """In a list to apply: the job of this key shall not exist."""

    key: str


type Wanted = Definition | Removal


def apply(
    wanted: Sequence[Wanted],
    *,
    tenant: int = TENANT,
    dry_run: bool = False,
    now: Millis | None = None,
) -> list[Outcome]:
    """Make the jobs with these keys what is wanted: create, change, pause, delete.

    Returns what became of each, in order. What is right already is left alone and
    costs its partition nothing. Everything is checked before anything is changed;
    a refusal is a BadValue whose message begins with the key. Raises JobsBusy, too.
    """
    _check_keys(wanted)
    planned = [
        outcome
        for batch in batched(wanted, BATCH)
        for outcome in _look(batch, tenant, now)
    ]
    if dry_run:
        return planned
    outcomes: list[Outcome] = []
    for batch in batched(zip(wanted, planned, strict=True), BATCH):
        outcomes += _apply(
            [entry for entry, _ in batch], [done for _, done in batch], tenant, now
        )
    return outcomes


def _apply(
    wanted: Sequence[Wanted],
    planned: Sequence[Outcome],
    tenant: int,
    now: Millis | None,
) -> list[Outcome]:
    """Carry out what was planned; plan anew where somebody took a key in between."""
    for tries_left in reversed(range(TRIES)):
        new = [
            entry
            for entry, outcome in zip(wanted, planned, strict=True)
            if isinstance(entry, Definition) and outcome.job_id is None
        ]
        edits = [
            _edit_of(entry, outcome.job_id)
            for entry, outcome in zip(wanted, planned, strict=True)
            if outcome.job_id is not None and outcome.actions != ("unchanged",)
        ]
        try:
            created = create_jobs(new, tenant=tenant, now=now)
        except KeyTaken:
            if not tries_left:
                raise
            planned = _look(wanted, tenant, now)
            continue
        done = {outcome.key: outcome for outcome in created}
        done |= {outcome.key: outcome for outcome in edit_jobs(edits, now=now)}
        return [done.get(outcome.key, outcome) for outcome in planned]
    raise AssertionError("the last try returns or raises")


def _look(wanted: Sequence[Wanted], tenant: int, now: Millis | None) -> list[Outcome]:
    """Return what applying would do, from one look without locks."""
    conn = raw_connection()
    ids = store.find_jobs(conn, tenant=tenant, keys=[entry.key for entry in wanted])
    jobs = {job.key: job for job in store.load_jobs(conn, jobs=list(ids.values()))}
    now = store.read_instant(conn).now if now is None else now
    outcomes = []
    for entry in wanted:
        job = jobs.get(entry.key)
        try:
            if job is not None:
                change = compare(job, _edit_of(entry, job.id))
                check_run_at(change, now=now)
                outcomes.append(change.outcome())
                continue
            if isinstance(entry, Definition):
                create(entry, job_id=new_id(now), now=now)
        except BadValue as error:
            raise type(error)(
                f"{entry.key}: {error.message}", field=error.field
            ) from None
        action = "created" if isinstance(entry, Definition) else "unchanged"
        outcomes.append(
            Outcome(
                job_id=None, key=entry.key, actions=(action,), version=1, revision=1
            )
        )
    return outcomes


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
