"""Rescue: runs whose worker is dead are offered again.

A worker is dead when its last beat is older than its lease, seen in two looks two
seconds apart and once more under its row's lock. After a pause of the database or a
jump of its clock every beat looks old: then all get the time to beat again first.
"""

import logging
import uuid
from dataclasses import dataclass, field

from apps.runs import store
from apps.runs.store import Orphan, Settlement
from apps.runtime.sessions import Connection
from chrono.rules import retry
from chrono.rules.errors import ChronoError
from chrono.rules.instants import Millis
from chrono.rules.lease import ALL_BEATEN_AFTER, LEASE_TTL
from chrono.rules.retry import Bury, Failure
from chrono.rules.states import Reason, RunState

log = logging.getLogger("chrono.runs")

ORPHANS = 500
LOST = "The worker stopped beating; what it did before is unknown."


@dataclass(slots=True, kw_only=True)
class Sweep:
    """Call :meth:`step` every two seconds; it remembers whom it suspects."""

    suspects: set[uuid.UUID] = field(default_factory=set)
    patient_until: Millis = 0

    def be_patient(self, now: Millis) -> None:
        """Take nobody for dead until every living worker has beaten again."""
        self.patient_until = now + ALL_BEATEN_AFTER
        self.suspects = set()

    def step(self, conn: Connection, *, now: Millis, horizon: Millis) -> int:
        """Bury workers stale in two looks in a row; return how many runs came back."""
        if now >= self.patient_until:
            self._bury(conn)
        rescued = 0
        while orphans := store.list_orphans(conn, limit=ORPHANS):
            settled = rescue(conn, orphans, now=now, horizon=horizon)
            rescued += settled
            if settled < ORPHANS:
                break
        return rescued

    def _bury(self, conn: Connection) -> None:
        stale = set(store.list_stale_workers(conn, ttl=LEASE_TTL))
        confirmed = self.suspects & stale
        self.suspects = stale - confirmed
        if confirmed:
            buried = store.mark_dead_if_stale(
                conn, workers=sorted(confirmed), ttl=LEASE_TTL
            )
            log.warning("%s workers stopped beating and are dead", len(buried))


def rescue(
    conn: Connection, orphans: list[Orphan], *, now: Millis, horizon: Millis
) -> int:
    """Settle leases of dead workers by their tokens; return how many it settled."""
    settled = store.settle_if_leased(
        conn, [verdict_on(orphan, now=now) for orphan in orphans], horizon=horizon
    )
    return len(settled)


def verdict_on(orphan: Orphan, *, now: Millis) -> Settlement:
    """Return what becomes of a run whose worker died: again at once, or dead.

    A lost worker spends an attempt: else a run that kills its worker kills them all.
    One that may be begun at most once is begun no more, and a person decides.
    """
    if orphan.once:
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
    verdict = retry.decide(
        Failure("worker_lost", LOST),
        policy=_policy(orphan),
        attempt=orphan.attempt,
        now=now,
        draw=0.0,
    )
    if isinstance(verdict, Bury):
        return Settlement(
            run_id=orphan.run_id,
            token=orphan.token,
            state=RunState.DEAD,
            reason=Reason.WORKER_LOST,
            error=LOST,
        )
    return Settlement(
        run_id=orphan.run_id,
        token=orphan.token,
        state=0,
        due=now,
        reason=Reason.WORKER_LOST,
        error=LOST,
    )


def _policy(orphan: Orphan) -> retry.RetryPolicy:
    try:
        return retry.from_json(orphan.retry_policy or {})
    except ChronoError:
        return retry.RetryPolicy()
