"""Create, change, pause, resume and delete jobs: each a transaction of its own.

Everything an edit does, it does under two locks, taken in this order: the rows of its
jobs by id, then the rows of their partitions by id, whose epoch it raises. The second
waits for a fire in flight and makes every later one look again, so what the ledger
says after it holds until the commit. The edit's instant is read after it, too.

``now`` replaces the database's clock in tests and nowhere else. Whoever calls must not
be in a transaction: success means that the change is on disk.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import batched
from uuid import UUID

import psycopg
from django.db import transaction

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
from apps.jobs.errors import JobNotFound, JobsBusy, KeyTaken
from apps.jobs.planning import LEDGER_KEPT, Timer
from apps.runs import store as runs
from apps.runtime.django_session import raw_connection
from apps.runtime.sessions import Connection
from chrono.rules.instants import Millis
from chrono.rules.states import Reason

TENANT = 1
BATCH = 500
"""How many jobs a transaction edits at most: its partitions wait for it."""
COUNTED = 10_000
"""How many missed occurrences a transaction counts one by one, over all its jobs."""
LEAST_COUNTED = 100


def create_job(
    definition: Definition, *, tenant: int = TENANT, now: Millis | None = None
) -> Outcome:
    """Create a job and plan its first occurrence.

    Raises KeyTaken, JobsBusy, or BadValue for a `run_at` more than a day back.
    """
    [outcome] = create_jobs([definition], tenant=tenant, now=now)
    return outcome


def create_jobs(
    definitions: Sequence[Definition],
    *,
    tenant: int = TENANT,
    now: Millis | None = None,
) -> list[Outcome]:
    """Create jobs, 500 a transaction; see :func:`create_job`.

    Where one is refused its whole transaction is; earlier ones stay.
    """
    outcomes: list[Outcome] = []
    for batch in batched(definitions, BATCH):
        with _transaction() as conn:
            outcomes += _create(conn, batch, tenant, now)
    return outcomes


def change_job(
    job_id: UUID, definition: Definition, *, now: Millis | None = None
) -> Outcome:
    """Give a job a new definition, whole; where nothing differs, do nothing.

    Another schedule or jitter window begins a new plan; what the old one left open up
    to now is decided first. Anything else is a new revision of the same plan. Raises
    JobNotFound, JobsBusy, or BadValue for another key or a `run_at` that is over.
    """
    edit = Edit(job_id=job_id, definition=definition, paused=definition.paused)
    [outcome] = edit_jobs([edit], now=now)
    return outcome


def pause_job(job_id: UUID, *, note: str = "", now: Millis | None = None) -> Outcome:
    """End a job's planning until it is resumed; no run of its schedule follows.

    What was due and not yet fired is recorded as skipped. Raises JobNotFound, JobsBusy.
    """
    [outcome] = pause_jobs([job_id], note=note, now=now)
    return outcome


def pause_jobs(
    job_ids: Sequence[UUID], *, note: str = "", now: Millis | None = None
) -> list[Outcome]:
    """Pause jobs, 500 a transaction, each once; see :func:`pause_job`."""
    return edit_jobs(
        [Edit(job_id=j, paused=True, note=note) for j in dict.fromkeys(job_ids)],
        now=now,
    )


def resume_job(job_id: UUID, *, now: Millis | None = None) -> Outcome:
    """Plan a paused job from now on. Raises JobNotFound, JobsBusy."""
    [outcome] = resume_jobs([job_id], now=now)
    return outcome


def resume_jobs(job_ids: Sequence[UUID], *, now: Millis | None = None) -> list[Outcome]:
    """Resume jobs, 500 a transaction; see :func:`resume_job`."""
    return edit_jobs(
        [Edit(job_id=j, paused=False) for j in dict.fromkeys(job_ids)], now=now
    )


def delete_job(job_id: UUID, *, now: Millis | None = None) -> Outcome:
    """Delete a job: its history stays, its key is free, its waiting runs are cancelled.

    Runs that are ready already are cancelled by the worker that claims them. Raises
    JobNotFound, JobsBusy.
    """
    [outcome] = delete_jobs([job_id], now=now)
    return outcome


def delete_jobs(job_ids: Sequence[UUID], *, now: Millis | None = None) -> list[Outcome]:
    """Delete jobs, 500 a transaction; see :func:`delete_job`."""
    return edit_jobs(
        [Edit(job_id=j, deleted=True) for j in dict.fromkeys(job_ids)], now=now
    )


def edit_jobs(edits: Sequence[Edit], *, now: Millis | None = None) -> list[Outcome]:
    """Edit jobs, at most 500 a transaction; return what became of each, in order.

    A job is there once at most. Where one is refused its whole transaction is; earlier
    ones stay. Raises JobNotFound, JobsBusy, BadValue.
    """
    outcomes: list[Outcome] = []
    for batch in batched(edits, BATCH):
        with _transaction() as conn:
            outcomes += _edit(conn, batch, now)
    return outcomes


def _create(
    conn: Connection,
    definitions: Sequence[Definition],
    tenant: int,
    now: Millis | None,
) -> list[Outcome]:
    instant = store.read_instant(conn)
    now = instant.now if now is None else now
    made = [create(d, job_id=new_id(now), now=now) for d in definitions]
    inserted = store.insert_jobs(
        conn, jobs=[new.job for new in made], tenant=tenant, now=now
    )
    for new in made:
        if new.job.id not in inserted:
            raise KeyTaken(f"Another job has the key {new.job.key}.", field="key")
    store.insert_revisions(
        conn, revisions=[(new.job.id, 1, new.revision) for new in made], now=now
    )
    _plan(conn, [timer for new in made for timer in new.timers], instant.horizon)
    _hint([new.job.part for new in made])
    return [_created(new) for new in made]


def _created(new: Created) -> Outcome:
    return Outcome(
        job_id=new.job.id, key=new.job.key, actions=("created",), version=1, revision=1
    )


def _edit(conn: Connection, edits: Sequence[Edit], now: Millis | None) -> list[Outcome]:
    store.lock_jobs(conn, jobs=[edit.job_id for edit in edits])
    found = store.load_jobs(conn, jobs=[edit.job_id for edit in edits])
    jobs = {job.id: job for job in found}
    for edit in edits:
        if edit.job_id not in jobs:
            raise JobNotFound(f"There is no job {edit.job_id}.")
    changes = [compare(jobs[edit.job_id], edit) for edit in edits]
    effective = [change for change in changes if change.actions]
    if effective:
        _write(conn, effective, now)
    return [change.outcome() for change in changes]


def _write(conn: Connection, changes: Sequence[Change], now: Millis | None) -> None:
    jobs = [change.job for change in changes]
    epochs = store.bump_epochs(conn, parts=[job.part for job in jobs])
    instant = store.read_instant(conn)
    now = instant.now if now is None else now
    decided = store.read_decided(conn, jobs=jobs, since=now - LEDGER_KEPT)
    written = [
        carry_out(
            change,
            epoch=epochs[change.job.part],
            decided=decided[change.job.id],
            now=now,
            limit=max(LEAST_COUNTED, COUNTED // len(changes)),
        )
        for change in changes
    ]
    _write_rows(conn, written, now, instant.horizon)
    _settle_deleted(conn, [change for change in changes if change.edit.deleted])
    _hint([job.part for job in jobs])


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
    _plan(conn, [timer for rows in written for timer in rows.timers], horizon)
    skips = [skip for rows in written for skip in rows.skips]
    if skips:
        store.insert_skips(conn, skips=skips)


def _plan(conn: Connection, timers: Sequence[Timer], horizon: Millis) -> None:
    near = [timer for timer in timers if timer.due_at < horizon]
    far = [timer for timer in timers if timer.due_at >= horizon]
    if near:
        store.insert_timers(conn, timers=near, table="chrono_timer")
    if far:
        store.insert_timers(conn, timers=far, table="chrono_timer_far")


def _settle_deleted(conn: Connection, deleted: Sequence[Change]) -> None:
    if not deleted:
        return
    for timers in runs.TIMERS:
        runs.cancel_timed_of_jobs(
            conn,
            jobs=[change.job.id for change in deleted],
            parts=sorted({change.job.part for change in deleted}),
            reason=Reason.DELETED,
            timers=timers,
        )


def _hint(parts: Sequence[int]) -> None:
    """Tell the leaders after the commit; a lost hint costs them half a second."""
    transaction.on_commit(partial(_notify, sorted(set(parts))), robust=True)


def _notify(parts: Sequence[int]) -> None:
    store.notify_leaders(raw_connection(), partitions=parts)


@contextmanager
def _transaction() -> Iterator[Connection]:
    """Open the outermost transaction with its limits set; raise JobsBusy at them."""
    try:
        with transaction.atomic(durable=True):
            conn = raw_connection()
            store.set_limits(conn)
            yield conn
    except (
        psycopg.errors.LockNotAvailable,
        psycopg.errors.DeadlockDetected,
        psycopg.errors.QueryCanceled,
        psycopg.errors.IdleInTransactionSessionTimeout,
    ) as error:
        raise JobsBusy from error
