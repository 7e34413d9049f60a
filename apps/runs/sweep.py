"""Rescue: runs whose worker is dead are offered again.

A worker is dead when its last beat is older than its lease, or when none of its
sessions is left: so ends whoever is killed. Both are seen in several looks and once
more under its row's lock. After a pause of the database or a jump of its clock every
beat looks old, after a restart no session is left: then all get the time to come back.
"""

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from apps.runs import store, worker_store
from apps.runs.store import Settlement
from apps.runs.worker_store import Look, Orphan
from apps.runtime.clock import Clock, strayed
from apps.runtime.sessions import Connection
from chrono.rules import retry
from chrono.rules.errors import ChronoError
from chrono.rules.instants import MINUTE, SECOND, Millis
from chrono.rules.lease import (
    ALL_BEATEN_AFTER,
    CROWD_LOOK_AFTER,
    GONE_AFTER,
    LEASE_TTL,
    SECOND_LOOK_AFTER,
    SESSIONS_BACK_AFTER,
    SUSPECT_AFTER,
    dead_after,
)
from chrono.rules.retry import Bury, Failure
from chrono.rules.states import Reason, RunState

log = logging.getLogger("chrono.runs")

ORPHANS = 500
SWEPT_AFTER: Millis = MINUTE
"""So long a dead worker's runs are looked for: an open claim may still bring some."""
ALL_ORPHANS_EVERY: Millis = 30 * SECOND
"""How often leases are looked for whose worker has no row, or was swept before."""
LOST = "The worker stopped beating; what it did before is unknown."

UNDONE = (
    "The worker was lost before the task's transaction was committed: what it wrote "
    "there was rolled back."
)
CRASHED = "The process that ran it ended; what it did before is unknown."
GUILTY = "Its process ended {} times while it ran; the last time it ran alone."
ALONE_AFTER = 2
"""A run that was there when so many processes died is executed alone."""

type Since = dict[uuid.UUID, Millis]


@dataclass(slots=True, kw_only=True)
class Sweep:
    """Call :meth:`step` every second; it remembers whom it suspects since when.

    ``horizon`` returns up to where timers have buckets.
    """

    horizon: Callable[[], Millis]
    _silent: Since = field(default_factory=dict)
    _gone: dict[uuid.UUID, tuple[Millis, Millis]] = field(default_factory=dict)
    """Since when, by the clock and by the database's."""
    _dead: Since = field(default_factory=dict)
    _patient_until: Millis = 0
    _sessions_from: Millis = 0
    _orphans_from: Millis = 0

    def be_patient(self, now: Millis) -> None:
        """Take nobody's silence for death until every living worker could beat again.

        For when nobody watched: the database may have been away.
        """
        self._patient_until = now + ALL_BEATEN_AFTER
        self._silent = {}

    def distrust_sessions(self, now: Millis) -> None:
        """Take nobody for dead for want of a session: all may have been cut off."""
        self._sessions_from = now + SESSIONS_BACK_AFTER
        self._gone = {}

    def step(self, conn: Connection, *, clock: Clock) -> int:
        """Bury who is dead; return how many runs came back."""
        before = clock.now()
        look = worker_store.look_at_workers(conn, quiet=SUSPECT_AFTER)
        now = clock.now()
        if strayed(clock, look.at, since=before):
            self.be_patient(now)
        buried = self._bury_gone(conn, look, now) + self._bury_silent(conn, look, now)
        return self._rescue(conn, look.dead.union(buried), now)

    def _bury_silent(
        self, conn: Connection, look: Look, now: Millis
    ) -> list[uuid.UUID]:
        if now < self._patient_until:
            return []
        self._silent = {w: self._silent.get(w, now) for w in look.silent}
        suspects = _seen_for(self._silent, SECOND_LOOK_AFTER, now)
        if not suspects:
            return []
        theirs, of_all = worker_store.count_leases(conn, workers=suspects)
        wait = dead_after(theirs=theirs, of_all=of_all)
        if wait == CROWD_LOOK_AFTER:
            suspects = _seen_for(self._silent, wait, now)
        buried = worker_store.mark_dead_if_stale(conn, workers=suspects, ttl=LEASE_TTL)
        if buried:
            log.warning(
                "%s workers stopped beating and are dead",
                len(buried),
                extra=_named(buried),
            )
        return buried

    def _bury_gone(self, conn: Connection, look: Look, now: Millis) -> list[uuid.UUID]:
        if now < self._sessions_from or look.up_for < SESSIONS_BACK_AFTER:
            self._gone = {}
            return []
        self._gone = {w: self._gone.get(w, (now, look.at)) for w in look.gone}
        suspects = {
            w: at for w, (seen, at) in self._gone.items() if now - seen >= GONE_AFTER
        }
        if not suspects:
            return []
        buried = worker_store.mark_dead_if_gone(conn, since=suspects)
        for worker in suspects:
            # One that is not buried has beaten, or is back: it is seen anew.
            del self._gone[worker]
        if buried:
            log.warning(
                "%s workers have no session left and are dead",
                len(buried),
                extra=_named(buried),
            )
        return buried

    def _rescue(self, conn: Connection, dead: frozenset[uuid.UUID], now: Millis) -> int:
        self._dead = {w: self._dead.get(w, now) for w in dead}
        if not dead and now < self._orphans_from:
            return 0
        self._orphans_from = now + ALL_ORPHANS_EVERY
        rescued = rescue_all(conn, now=now, horizon=self.horizon)
        if swept := _seen_for(self._dead, SWEPT_AFTER, now):
            worker_store.mark_swept(conn, workers=swept)
        return rescued


def _named(workers: list[uuid.UUID]) -> dict[str, object]:
    """Return what a line of the log says of workers besides its text."""
    return {"facts": {"workers": [str(worker) for worker in workers]}}


def _seen_for(since: Since, wait: Millis, now: Millis) -> list[uuid.UUID]:
    """Return those that have been seen for so long, in the order of their ids."""
    return sorted(worker for worker, at in since.items() if now - at >= wait)


def rescue_all(conn: Connection, *, now: Millis, horizon: Callable[[], Millis]) -> int:
    """Settle what dead and missing workers hold; return how many runs came back."""
    rescued = 0
    while orphans := worker_store.list_orphans(conn, limit=ORPHANS):
        settled = rescue(conn, orphans, now=now, horizon=horizon())
        rescued += settled
        if settled < ORPHANS:
            break
    return rescued


def rescue(
    conn: Connection, orphans: list[Orphan], *, now: Millis, horizon: Millis
) -> int:
    """Settle leases of dead workers by their tokens; return how many it settled.

    ``conn`` is an autocommit session: deaths are noted in the same transaction.
    """
    aside = [orphan for orphan in orphans if must_be_alone(orphan)]
    others = [orphan for orphan in orphans if not must_be_alone(orphan)]
    crashed = {o.run_id: (o.part, o.run_id) for o in orphans if o.crashed}
    with conn.transaction():
        settled = store.settle_if_leased(
            conn, [verdict_on(orphan, now=now) for orphan in others], horizon=horizon
        )
        if aside:
            settled |= worker_store.set_aside_if_leased(
                conn, [(o.run_id, o.token) for o in aside], error=CRASHED
            )
        if died := sorted(crashed[run] for run in settled & crashed.keys()):
            worker_store.note_deaths(conn, runs=died)
    return len(settled)


def must_be_alone(orphan: Orphan) -> bool:
    """Return whether a run is to be executed by a process of its own from now on.

    It was there at two deaths. The one that killed the process was, too.
    """
    return (
        orphan.crashed
        and not orphan.alone
        and not orphan.job_deleted
        and not orphan.once
        and orphan.deaths + 1 >= ALONE_AFTER
    )


def verdict_on(orphan: Orphan, *, now: Millis) -> Settlement:
    """Return what becomes of a run whose worker died: again at once, or dead.

    A silent worker spends an attempt: else a run that hangs its worker hangs them all.
    A process that died spends none, unless the run was alone in it: then it is guilty.
    One that may be begun at most once is begun no more: a person decides what became of
    it, unless all that it did was undone for certain.
    """
    if orphan.once and not orphan.transactional:
        return Settlement(
            run_id=orphan.run_id,
            token=orphan.token,
            state=RunState.UNKNOWN,
            reason=Reason.WORKER_LOST,
            error=LOST,
        )
    if orphan.job_deleted:
        return Settlement(
            run_id=orphan.run_id,
            token=orphan.token,
            state=RunState.CANCELLED,
            reason=Reason.DELETED,
        )
    if orphan.once:
        return _dead(orphan, Reason.WORKER_LOST, UNDONE)
    if orphan.crashed and orphan.alone:
        return _dead(orphan, Reason.PROCESS_CRASH, GUILTY.format(orphan.deaths + 1))
    if not orphan.crashed:
        verdict = retry.decide(
            Failure("worker_lost", LOST),
            policy=_policy(orphan),
            attempt=retry.charged(orphan.attempt, spared=orphan.deaths),
            now=now,
            draw=0.0,
        )
        if isinstance(verdict, Bury):
            return _dead(orphan, Reason.WORKER_LOST, LOST)
    return Settlement(
        run_id=orphan.run_id,
        token=orphan.token,
        state=0,
        due=now,
        reason=Reason.WORKER_LOST,
        error=CRASHED if orphan.crashed else LOST,
    )


def _dead(orphan: Orphan, reason: Reason, error: str) -> Settlement:
    return Settlement(
        run_id=orphan.run_id,
        token=orphan.token,
        state=RunState.DEAD,
        reason=reason,
        error=error,
    )


def _policy(orphan: Orphan) -> retry.RetryPolicy:
    try:
        return retry.from_json(orphan.retry_policy or {})
    except ChronoError:
        return retry.RetryPolicy()
