"""The tables' keeper: what the leader of partition 0 does besides firing.

On a thread and a session of its own, so that a lock it waits for never delays a fire.
Every piece is safe to repeat and safe beside another keeper.
"""

import logging
import threading
from collections.abc import Callable

import psycopg

from apps.jobs import watch
from apps.jobs.commands import resume_due, take_back
from apps.jobs.failures import Failures
from apps.jobs.watch import Watch
from apps.queue import withdrawals
from apps.queue.rotation import Rotation
from apps.runs import days, slots
from apps.runs.sweep import Sweep
from apps.runtime import requests
from apps.runtime.clock import Clock, jumped
from apps.runtime.sessions import Connection
from apps.scheduler import store
from apps.tenants.actor import Actor
from apps.timers import buckets
from apps.timers.store import read_dispatch_state
from chrono.rules.errors import ChronoError
from chrono.rules.instants import Millis
from chrono.rules.lease import SWEEP_EVERY

log = logging.getLogger("chrono.upkeep")

ACTOR = Actor.system("scheduler")
STEP_S = 2.0
CLEAR_EVERY: Millis = 5_000
LOCKED_FOR: Millis = 300
"""A session of ours that waits longer than this for a lock is spoken of."""
BUCKETS_EVERY: Millis = 60_000
DROP_EVERY: Millis = 600_000


class Upkeep(threading.Thread):
    """Keeps the tables while ``leads()`` says that this process is the keeper."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        clock: Clock,
        *,
        leads: Callable[[], bool],
    ) -> None:
        super().__init__(name="upkeep", daemon=True)
        self._connect = connect
        self._clock = clock
        self._leads = leads
        self._conn: Connection | None = None
        self._stopping = threading.Event()
        self._rotation = Rotation()
        self._sweep = Sweep()
        self._failures = Failures()
        self._watch = Watch()
        self._keeps = False
        self._done: dict[str, Millis] = {}

    def prepare(self) -> None:
        """Make the buckets and days that are missing, before anything fires."""
        conn = self._session()
        store.lock_upkeep(conn)
        try:
            self._make_room(conn, self._clock.now())
        finally:
            store.unlock_upkeep(conn)

    def run(self) -> None:
        """Step every two seconds until told to stop."""
        while not self._stopping.wait(STEP_S):
            if not self._leads():
                self._keeps = False
                self._close()
                continue
            try:
                self.step()
            except psycopg.Error as error:
                log.warning("upkeep put off: %s", str(error).splitlines()[0])
                self._close()
            except Exception:
                # Nobody would miss this thread for hours.
                log.exception("upkeep failed, and tries again")
                self._close()
        self._close()

    def stop(self) -> None:
        """End the thread; returns when its present step is over, or after 2 s."""
        self._stopping.set()
        if self.is_alive():
            self.join(timeout=2.0)

    def step(self) -> None:
        """Do what is due of the keeper's work."""
        conn, now = self._session(), self._clock.now()
        self._name_blockers(conn)
        state = read_dispatch_state(conn)
        self._resume(conn)
        self._take_back(conn)
        self._pause(conn, now)
        self._rotation.step(conn, current=state.slice, now=now)
        if self._is_due("sweep", SWEEP_EVERY, now):
            if not self._keeps or jumped(self._clock, conn):
                # Nobody watched the beats grow old: the database may have been away.
                self._sweep.be_patient(now)
                self._keeps = True
            rescued = self._sweep.step(conn, now=now, horizon=state.horizon)
            if rescued:
                log.warning("%s runs of dead workers are offered again", rescued)
        if self._is_due("clear", CLEAR_EVERY, now):
            withdrawals.clear(conn)
            slots.clear(conn)
        if self._is_due("watch", watch.EVERY, now):
            noticed = self._watch.step(conn, actor=ACTOR, now=now)
            if noticed:
                log.warning("%s events of jobs were noted", noticed)
        if self._is_due("buckets", BUCKETS_EVERY, now):
            self._make_room(conn, now)
        if self._is_due("drop", DROP_EVERY, now):
            self._drop(conn, now)

    def _name_blockers(self, conn: Connection) -> None:
        """Say for whom our sessions wait; a lock that is forgotten stops the firing."""
        for waiting, holder in store.list_blockers(conn, after=LOCKED_FOR):
            log.warning("a session of %s waits for a lock of %s", waiting, holder)

    def _resume(self, conn: Connection) -> None:
        """Resume what was paused until now; a refusal must not keep the rest back."""
        try:
            for outcome in resume_due(conn, actor=ACTOR):
                log.info("the pause of job %s is over", outcome.job_id)
        except ChronoError as error:
            log.warning("pauses that are over wait: %s", error)

    def _take_back(self, conn: Connection) -> None:
        """Plan the runs that skipped late occurrences gave back."""
        try:
            for outcome in take_back(conn, actor=ACTOR):
                log.info("job %s has runs of skipped occurrences left", outcome.key)
        except ChronoError as error:
            log.warning("runs of skipped occurrences wait: %s", error)

    def _pause(self, conn: Connection, now: Millis) -> None:
        """Pause the jobs whose runs keep dying; a busy one waits for the next step."""
        try:
            for outcome in self._failures.step(conn, actor=ACTOR, now=now):
                log.warning("job %s is paused: its runs died", outcome.key)
        except ChronoError as error:
            log.warning("jobs whose runs died wait to be paused: %s", error)

    def _drop(self, conn: Connection, now: Millis) -> None:
        """Drop and delete what is past its retention."""
        for dropped in (
            *buckets.drop_old_buckets(conn, now=now),
            *days.drop_old_days(conn, now=now),
        ):
            log.info("dropped %s", dropped)
        for purge in (days.purge_kept, watch.purge):
            while purge(conn, now=now):
                pass
        slots.clear_lost(conn)
        requests.purge(conn)

    def _make_room(self, conn: Connection, now: Millis) -> None:
        horizon = buckets.ensure_buckets(conn, now=now)
        buckets.move_far(conn, now=now, horizon=horizon)
        strays = days.ensure_days(conn, now=now)
        if strays:
            log.error("%s rows had gone to a default leaf and were moved", strays)

    def _is_due(self, work: str, every: Millis, now: Millis) -> bool:
        if now - self._done.get(work, -every) < every:
            return False
        self._done[work] = now
        return True

    def _session(self) -> Connection:
        if self._conn is None or self._conn.closed:
            self._conn = self._connect()
        return self._conn

    def _close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None
