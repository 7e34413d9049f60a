"""Jobs in their public form, read for somebody: one, a list, and what comes next."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from apps.jobs import store, watch_store
from apps.jobs.errors import JobDeleted, JobNotFound
from apps.jobs.planning import LEDGER_KEPT, last_decided
from apps.jobs.public import (
    NEXT_RUNS,
    event_fields,
    job_fields,
    job_item,
    revision_fields,
)
from apps.jobs.store import Chosen, Decided, Job, Look, Skips
from apps.runtime.sessions import Connection
from apps.tenants.actor import Actor, Scope
from chrono.rules import jitter
from chrono.rules.instants import LATEST, Millis, format_instant
from chrono.rules.keys import PAST_ID
from chrono.rules.preview import foresee
from chrono.rules.schedule import schedule_from_json

LIVING = frozenset({"active", "paused", "ended"})
LOOK = 5_000
MOST_COUNTED = 1_000
"""How many rows of skipped and missed occurrences are counted of one job."""
PAST_EVENT = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """Some jobs, and after which one the next page goes on; None at the end."""

    items: list[dict[str, Any]]
    next: UUID | None


def get_job(
    conn: Connection, job_id: UUID, *, actor: Actor, now: Millis | None = None
) -> dict[str, Any]:
    """Return a job's public form, a deleted one's too. Raises JobNotFound."""
    found = read_jobs(conn, [job_id], actor=actor, now=now)
    if not found:
        raise JobNotFound(f"There is no job {job_id}.")
    return found[0]


def get_new_job(conn: Connection, job_id: UUID, *, actor: Actor) -> dict[str, Any]:
    """Return the public form of a job that was created a moment ago, as it was then.

    Only the job is read: nothing of it was decided yet. Raises JobNotFound.
    """
    job = find_job(conn, job_id, actor=actor)
    if job.changes != 1:
        # Somebody was quick.
        return get_job(conn, job_id, actor=actor)
    return job_fields(
        job,
        decided=Decided(
            scheduled_for=None, last_run=None, remaining=job.remaining_runs
        ),
        last_run=None,
        skips=Skips(skipped=0, missed=0, capped=False),
        now=job.created_at,
        secrets=actor.may(Scope.WRITE),
    )


def read_jobs(
    conn: Connection,
    job_ids: Sequence[UUID],
    *,
    actor: Actor,
    runs: int = NEXT_RUNS,
    now: Millis | None = None,
) -> list[dict[str, Any]]:
    """Return the public forms of those of these jobs that the actor sees, in order.

    Each with its next ``runs`` instants. Only who may write sees the values of headers.
    """
    loaded = store.load_jobs(conn, jobs=job_ids, tenant=actor.tenant)
    found = {job.id: job for job in loaded}
    ordered = [found[job_id] for job_id in job_ids if job_id in found]
    return _public(conn, ordered, actor=actor, runs=runs, now=now)


def list_jobs(
    conn: Connection,
    *,
    tenant: int,
    actor: Actor,
    chosen: Chosen,
    key: str | None = None,
    after: UUID | None = None,
    limit: int,
    now: Millis | None = None,
) -> JobPage:
    """Return a tenant's jobs in short form, newest first, from after an id on.

    Deleted ones only where their state is asked for. A page may be short and yet have a
    ``next``: after 5,000 jobs that were not wanted it is given back.
    """
    states = LIVING if chosen.states is None else chosen.states
    living, deleted = states & LIVING, "deleted" in states
    if living in (LIVING, frozenset()):
        # Then the index alone says which they are.
        chosen = replace(chosen, states=None)
    picky = chosen != Chosen() or key is not None
    look = Look(
        tenant=tenant,
        before=PAST_ID if after is None else after,
        most=LOOK if picky else limit + 1,
        living=bool(living),
        deleted=deleted,
        key=key,
    )
    found = store.list_jobs(conn, look=look, chosen=chosen, limit=limit + 1)
    page = found[:limit]
    following = page[-1].id if len(found) > limit else None
    if following is None and picky:
        following = _end_of(conn, look)
    fields = _public(conn, page, actor=actor, runs=0, now=now)
    return JobPage(items=[job_item(one) for one in fields], next=following)


def find_job(conn: Connection, job_id: UUID, *, actor: Actor) -> Job:
    """Return a job that the actor sees, a deleted one too. Raises JobNotFound."""
    for job in store.load_jobs(conn, jobs=[job_id], tenant=actor.tenant):
        return job
    raise JobNotFound(f"There is no job {job_id}.")


def find_key(conn: Connection, key: str, *, tenant: int) -> UUID:
    """Return the id of a tenant's job with this key. Raises JobNotFound."""
    found = store.find_jobs(conn, tenant=tenant, keys=[key])
    if key not in found:
        raise JobNotFound("There is no job with this key.")
    return found[key]


def list_next(
    conn: Connection,
    job_id: UUID,
    *,
    actor: Actor,
    count: int,
    after: Millis | None = None,
    now: Millis | None = None,
) -> list[dict[str, Any]]:
    """Return a job's next occurrences, each nominal, due, local and with its note.

    After an instant, or after the last one decided. A paused job has none before the
    end of its pause. Raises JobNotFound, JobDeleted, BadSchedule.
    """
    job = find_job(conn, job_id, actor=actor)
    if job.deleted_at is not None:
        raise JobDeleted(deleted_message(job))
    if job.paused and job.paused_until is None:
        return []
    now = store.read_instant(conn).now if now is None else now
    [decided] = read_decisions(conn, [job], now=now).values()
    known = last_decided(
        ledger=decided.scheduled_for, activated_at=job.activated_at, now=now
    )
    start = max(known, after or 0, job.paused_until or 0)
    if decided.remaining is not None:
        count = min(count, decided.remaining)
    if not count:
        return []
    schedule = schedule_from_json(job.definition.schedule)
    offset = jitter.offset(job.id, job.definition.jitter_window)
    return [
        {
            "scheduled_for": format_instant(fire.at),
            "due_at": format_instant(fire.at + offset),
            "local": fire.local,
            "note": fire.note,
        }
        for fire in foresee(schedule, after=start, count=count, job_id=job.id).fires
        if fire.at + offset < LATEST
    ]


def list_revisions(
    conn: Connection, job_id: UUID, *, actor: Actor, before: int | None, limit: int
) -> tuple[list[dict[str, Any]], int | None]:
    """Return a job's revisions, newest first, and the number that the next page begins
    below; None at the end. Raises JobNotFound.
    """
    job = find_job(conn, job_id, actor=actor)
    found = store.list_revisions(
        conn,
        job=job.id,
        before=job.revision + 1 if before is None else before,
        limit=limit + 1,
    )
    page = found[:limit]
    following = page[-1].number if len(found) > limit else None
    return [revision_fields(job, one) for one in page], following


def list_events(
    conn: Connection, job_id: UUID, *, actor: Actor, before: int | None, limit: int
) -> tuple[list[dict[str, Any]], int | None]:
    """Return what was noticed of a job, newest first, and the number that the next page
    begins below; None at the end. Raises JobNotFound.
    """
    job = find_job(conn, job_id, actor=actor)
    found = watch_store.list_events(
        conn,
        job=job.id,
        before=PAST_EVENT if before is None else before,
        limit=limit + 1,
    )
    page = found[:limit]
    following = page[-1].id if len(found) > limit else None
    return [event_fields(one) for one in page], following


def deleted_message(job: Job) -> str:
    """Return what is said of a deleted job."""
    at = "" if job.deleted_at is None else f" at {format_instant(job.deleted_at)}"
    return f"The job {job.id} was deleted{at}; restore it first."


def read_decisions(
    conn: Connection, jobs: Sequence[Job], *, now: Millis
) -> dict[UUID, Decided]:
    """Return what is decided of jobs, and how many runs are left where that counts."""
    decided = store.read_decided(conn, jobs=jobs, since=now - LEDGER_KEPT)
    counted = [job for job in jobs if job.remaining_runs is not None]
    if not counted:
        return decided
    left = store.read_remaining(conn, jobs=counted, decided=decided)
    for job in counted:
        # A plan without a trace has no run left; of a paused one the job itself knows.
        stopped = job.paused or job.deleted_at is not None
        planned, back = left[job.id]
        runs = (job.remaining_runs if stopped else planned) or 0
        decided[job.id] = replace(decided[job.id], remaining=runs + back)
    return decided


def _end_of(conn: Connection, look: Look) -> UUID | None:
    """Return where a look ended that may have more behind it."""
    if look.key is not None:
        # Of the living a key chooses one at most; what was walked through are others.
        look = replace(look, living=False, most=look.most - 1)
    return store.find_nth_job(conn, look=look)


def _public(
    conn: Connection,
    jobs: Sequence[Job],
    *,
    actor: Actor,
    runs: int,
    now: Millis | None,
) -> list[dict[str, Any]]:
    if not jobs:
        return []
    now = store.read_instant(conn).now if now is None else now
    decided = read_decisions(conn, jobs, now=now)
    last_runs = store.list_last_runs(conn, jobs=jobs)
    skips = store.count_skips(
        conn, jobs=jobs, since=now - LEDGER_KEPT, limit=MOST_COUNTED
    )
    return [
        job_fields(
            job,
            decided=decided[job.id],
            last_run=last_runs.get(job.id),
            skips=skips[job.id],
            now=now,
            runs=runs,
            secrets=actor.may(Scope.WRITE),
        )
        for job in jobs
    ]
