"""The tables' keeper: what the leader of partition 0 does besides firing.

On a thread and a session of its own, so that a lock it waits for never delays a fire.
Every piece is safe to repeat and safe beside another keeper.
"""

import logging
from collections.abc import Callable
from typing import override

import psycopg

from apps.jobs import watch
from apps.jobs.commands import resume_due, take_back
from apps.jobs.failures import Failures
from apps.jobs.watch import Watch
from apps.queue import withdrawals
from apps.queue.rotation import Rotation
from apps.queue.store import purge_passes
from apps.runs import days, slots, targets
from apps.runtime import requests
from apps.runtime.clock import Clock
from apps.runtime.sessions import Connection
from apps.scheduler import store
from apps.scheduler.keeper import Keeper
from apps.scheduler.store import Work
from apps.tenants.actor import Actor
from apps.timers import buckets
from chrono.rules.errors import ChronoError
from chrono.rules.instants import DAY, Millis

log = logging.getLogger("chrono.upkeep")

ACTOR = Actor.system("scheduler")
STEP_S = 2.0
WATCH_REST = 20
"""How many times as long as it took the watch rests."""
CLEAR_EVERY: Millis = 5_000
LOCKED_FOR: Millis = 300
"""A session of ours that waits longer than this for a lock is spoken of."""
BUCKETS_EVERY: Millis = 60_000
DROP_EVERY: Millis = 600_000


class Upkeep(Keeper):
    """Keeps the tables while ``leads()`` says that this process is the keeper."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        clock: Clock,
        *,
        leads: Callable[[], bool],
    ) -> None:
        super().__init__("upkeep", connect, leads=leads, every_s=STEP_S)
        self._clock = clock
        self._rotation = Rotation()
        self._failures = Failures()
        self._watch = Watch()
        self._done: dict[str, Millis] = {}

    def prepare(self) -> None:
        """Make the buckets and days that are missing, before anything fires."""
        conn = self.session()
        store.lock_upkeep(conn)
        try:
            self._make_room(conn, self._clock.now())
        finally:
            store.unlock_upkeep(conn)

    @override
    def step(self) -> None:
        """Do what is due of the keeper's work."""
        conn, now = self.session(), self._clock.now()
        self._tend(conn, now)
        if self._is_due("watch", watch.EVERY, now):
            begun = self._clock.now()
            noticed = self._watch.step(conn, actor=ACTOR, now=now)
            # An old snapshot makes it slow: dead rows are in its way, and stay there.
            took = self._clock.now() - begun
            self._done["watch"] += max(0, took * WATCH_REST - watch.EVERY)
            if noticed:
                log.warning("%s events of jobs were noted", noticed)
        if self._is_due("buckets", BUCKETS_EVERY, now):
            self._make_room(conn, now)
        if self._is_due("drop", DROP_EVERY, now):
            self._drop(conn, now)

    def _tend(self, conn: Connection, now: Millis) -> None:
        """Do what a look finds to be done; an idle system costs that look alone."""
        work = self._look(conn, now)
        if work.blockers:
            self._name_blockers(conn)
        if work.pauses:
            self._resume(conn)
        if work.given_back:
            self._take_back(conn)
        if work.deaths:
            self._pause(conn, now)
        if work.ready:
            self._rotation.step(conn, current=work.slice, now=now)
        if work.to_clear and self._is_due("clear", CLEAR_EVERY, now):
            withdrawals.clear(conn)
            slots.clear(conn)

    def _look(self, conn: Connection, now: Millis) -> Work:
        """Return what there is to do."""
        try:
            return store.look_for_work(
                conn, after=LOCKED_FOR, since=self._failures.since(now)
            )
        except psycopg.errors.LockNotAvailable:
            # A whole table is locked: then others wait for whoever has it.
            self._name_blockers(conn)
            raise

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
        for purge in (days.purge_kept, watch.purge, targets.purge):
            while purge(conn, now=now):
                pass
        slots.clear_lost(conn)
        purge_passes(conn, before=now - DAY)
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
