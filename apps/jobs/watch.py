"""Watching: runs that do not begin, attempts that do not end, jobs without success.

What may be wrong is found from what is under way, a bounded stretch of each table a
step, and never by walking all jobs. Of a long queue each step looks at the part behind
the one before. What is wrong lies in a table of breaches, so it is told once, whoever
looks, and each event is written together with its breach.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from apps.jobs import watch_store as store
from apps.jobs.selectors import read_jobs
from apps.jobs.watch_store import (
    FIRST_BREACH,
    FIRST_JOB,
    FIRST_READY,
    FIRST_RUN,
    OpenBreach,
    Sought,
    Suspect,
    Told,
    WatchedJob,
)
from apps.runtime.sessions import Connection
from apps.tenants.actor import Actor
from chrono.rules import jitter
from chrono.rules.durations import format_duration
from chrono.rules.errors import BadValue
from chrono.rules.instants import DAY, SECOND, Millis, format_instant
from chrono.rules.keys import is_extra, scheduled_for_of
from chrono.rules.policy import from_json
from chrono.rules.watch import Breach, Sight, WatchKind, changes, sight

EVERY: Millis = 5 * SECOND
READY = 5_000
BLOCKED = 2_000
TIMED = 2_000
OVERDUE = 20
"""Of each partition."""
LEASES = 10_000
BREACHES = 500
JOBS = 500
LEAST: Millis = SECOND
"""The shortest bound there is: what is younger breaches none."""
LOOK_EVERY: Millis = 10 * DAY
"""So often at least a success is looked for, however long a job may do without."""
ROWS = 20_000
"""Of how many decisions of a job a success is looked for, at most."""
ROWS_OPEN = 500
"""And where it has none yet: those since the last step are enough."""
HISTORY: Millis = 6 * DAY
"""A run older than this that lies nowhere was a success, and left with its day."""
EVENTS_KEPT: Millis = 90 * DAY
PURGE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a look told of one possible breach."""

    breach: Breach
    how: Sight
    tenant: int
    part: int
    detail: str
    is_open: bool = False


class Watch:
    """Call :meth:`step` every five seconds; it remembers how far it looked."""

    def __init__(self) -> None:
        self._ready = FIRST_READY
        self._blocked = FIRST_RUN
        self._timed = FIRST_RUN
        self._leases = FIRST_RUN
        self._jobs = FIRST_JOB
        self._breaches = FIRST_BREACH

    def step(self, conn: Connection, *, actor: Actor, now: Millis) -> int:
        """Note what is wrong and what is over; return how many events that makes.

        ``conn`` is an autocommit session; the step is one transaction.
        """
        if not store.watch_anything(conn, before=now - LEAST):
            return 0
        with conn.transaction():
            store.prefer_indexes(conn)
            return self._step(conn, actor, now)

    def _step(self, conn: Connection, actor: Actor, now: Millis) -> int:
        # What is open comes last: it is younger than what the others saw.
        seen = {
            one.breach: one
            for look in (self._waiting, self._running, self._successes, self._open)
            for one in look(conn, actor, now)
        }
        found = changes(
            {breach: one.how for breach, one in seen.items()},
            {breach for breach, one in seen.items() if one.is_open},
        )
        told = [
            Told(
                breach=breach,
                change=change,
                tenant=seen[breach].tenant,
                part=seen[breach].part,
                detail=seen[breach].detail,
            )
            for breach, change in found.items()
        ]
        return store.change_breaches(conn, told=told, now=now) if told else 0

    def _waiting(self, conn: Connection, actor: Actor, now: Millis) -> Iterator[_Seen]:
        """Look at some of what has not begun, wherever it waits."""
        ready = store.watch_ready(conn, after=self._ready, now=now, limit=READY)
        blocked = store.watch_blocked(conn, after=self._blocked, now=now, limit=BLOCKED)
        timed = store.watch_timers(conn, after=self._timed, now=now, limit=TIMED)
        overdue = store.watch_overdue(conn, before=now - LEAST, limit=OVERDUE)
        self._ready = ready.next or FIRST_READY
        self._blocked = blocked.next or FIRST_RUN
        self._timed = timed.next or FIRST_RUN
        for place, suspects in (
            ("It waits for a worker", ready.suspects),
            ("It is held back", blocked.suspects),
            ("No worker that got it could begin it", timed.suspects),
            ("No scheduler has fired it", overdue),
        ):
            for suspect in suspects:
                due = _due(suspect)
                how = sight(due, bound=_bound(WatchKind.LATE, suspect.bound), now=now)
                if due is not None:
                    detail = f"{place}; it was due at {format_instant(due)}."
                    yield _of_run(WatchKind.LATE, suspect, how, detail)

    def _running(self, conn: Connection, actor: Actor, now: Millis) -> Iterator[_Seen]:
        """Look at some of what is executed."""
        found = store.watch_leases(conn, after=self._leases, now=now, limit=LEASES)
        self._leases = found.next or FIRST_RUN
        for suspect in found.suspects:
            begun, bound = suspect.started_at, _bound(WatchKind.LONG, suspect.bound)
            how = sight(begun, bound=bound, now=now)
            detail = f"Attempt {suspect.attempt} was begun at {format_instant(begun)}."
            yield _of_run(WatchKind.LONG, suspect, how, detail)

    def _successes(
        self, conn: Connection, actor: Actor, now: Millis
    ) -> Iterator[_Seen]:
        """Look at some jobs that must succeed now and then; most cost nothing more."""
        found, following = store.watch_jobs(conn, after=self._jobs, limit=JOBS)
        self._jobs = following or FIRST_JOB
        asked = [
            (job, bound)
            for job in found
            if (bound := _bound(WatchKind.NO_SUCCESS, job.bound)) is not None
            and _is_to_be_asked(job, bound, now)
        ]
        if not asked:
            return
        successes = store.find_successes(
            conn,
            sought=[_sought(job, bound, now) for job, bound in asked],
            gone=now - HISTORY,
        )
        noted = {job.job_id: successes.get(job.job_id) for job, _ in asked}
        store.save_watched(conn, successes=noted, now=now)
        failing = []
        for job, bound in asked:
            last = successes.get(job.job_id, job.succeeded_at)
            how = sight(max(last or 0, job.since), bound=bound, now=now)
            if how is Sight.HOLDS and job.open_since is None:
                failing.append((job, last))
            elif job.open_since is not None:
                yield _of_job(job, how, _how_long(job.open_since, now))
        over = _ended(conn, [job.job_id for job, _ in failing], actor, now)
        for job, last in failing:
            if job.job_id not in over:
                yield _of_job(job, Sight.HOLDS, _last_success(last))

    def _open(self, conn: Connection, actor: Actor, now: Millis) -> Iterator[_Seen]:
        """Look at some of what is open, whether it is over."""
        found = store.watch_breaches(conn, after=self._breaches, limit=BREACHES)
        self._breaches = FIRST_BREACH
        if len(found) == BREACHES:
            last = found[-1].breach
            self._breaches = (last.job_id, int(last.kind), last.run_id)
        for one in found:
            how = _stands(one, now)
            if how is not None:
                yield _Seen(
                    breach=one.breach,
                    how=how,
                    tenant=one.tenant,
                    part=one.part,
                    detail=_how_long(one.since, now),
                    is_open=True,
                )


def purge(conn: Connection, *, now: Millis) -> int:
    """Delete events past their retention; return how many.

    A bounded number a call; call again while it returns more than none.
    """
    return store.purge_events(conn, before=now - EVENTS_KEPT, limit=PURGE)


def _due(suspect: Suspect) -> Millis | None:
    """Return when a run was due, None for one that has no due instant of its own.

    A run that was handed back waits for a later instant than that. One that somebody
    asked for is due when it is asked for; the runs of a backfill are due when their
    turn comes.
    """
    instant = scheduled_for_of(suspect.run_id)
    if not is_extra(suspect.run_id):
        return instant + jitter.offset(suspect.job_id, suspect.jitter_window)
    return instant if suspect.due_at == instant else None


@lru_cache(maxsize=4096)
def _bound(kind: WatchKind, stored: str) -> Millis | None:
    """Return a bound as it is stored as JSON; None for one that cannot be read."""
    try:
        policy = from_json({kind.policy: json.loads(stored)})
    except BadValue:
        return None
    found: Millis | None = getattr(policy, kind.policy)
    return found


def _stands(one: OpenBreach, now: Millis) -> Sight | None:
    """Return how an open breach stands, None where nothing new is known of it."""
    if one.stopped:
        return Sight.QUIET
    bound = None if one.bound is None else _bound(one.breach.kind, one.bound)
    if bound is None:
        return Sight.OVER
    match one.breach.kind:
        case WatchKind.LATE:
            executed = one.started_at is not None and one.started_at < now - SECOND
            return Sight.OVER if one.begun or executed else None
        case WatchKind.LONG:
            return sight(one.started_at, bound=bound, now=now)
        case WatchKind.NO_SUCCESS:
            # Successes are looked for among the watched jobs.
            return None


def _is_to_be_asked(job: WatchedJob, bound: Millis, now: Millis) -> bool:
    """Return whether successes of a job are to be looked for."""
    last = max(job.succeeded_at or 0, job.since)
    looked = job.looked_at or job.since
    return (
        job.open_since is not None or now - last > bound or now - looked >= LOOK_EVERY
    )


def _sought(job: WatchedJob, bound: Millis, now: Millis) -> Sought:
    last = max(job.succeeded_at or 0, job.since)
    return Sought(
        job_id=job.job_id,
        part=job.part,
        after=max(last, now - bound),
        rows=ROWS if job.open_since is None else ROWS_OPEN,
    )


def _ended(
    conn: Connection, job_ids: Sequence[UUID], actor: Actor, now: Millis
) -> set[UUID]:
    """Return those of these jobs that have no run before them any more."""
    if not job_ids:
        return set()
    found = read_jobs(conn, job_ids, actor=actor, runs=0, now=now)
    return {UUID(fields["id"]) for fields in found if fields["state"] == "ended"}


def _of_run(kind: WatchKind, of: Suspect, how: Sight, detail: str) -> _Seen:
    return _Seen(
        breach=Breach(kind=kind, job_id=of.job_id, run_id=of.run_id),
        how=how,
        tenant=of.tenant,
        part=of.part,
        detail=detail,
    )


def _of_job(job: WatchedJob, how: Sight, detail: str) -> _Seen:
    return _Seen(
        breach=Breach(kind=WatchKind.NO_SUCCESS, job_id=job.job_id),
        how=how,
        tenant=job.tenant,
        part=job.part,
        detail=detail,
        is_open=job.open_since is not None,
    )


def _last_success(last: Millis | None) -> str:
    if last is None:
        return "No success of it is known."
    return f"Its last success ended at {format_instant(last)}."


def _how_long(since: Millis, now: Millis) -> str:
    length = (now - since) // SECOND * SECOND
    return f"It is over, {format_duration(max(0, length))} after it was noticed."
