"""The scheduler process: one loop that fires, threads that elect, keep and watch."""

import contextlib
import logging
import queue
from functools import partial

import psycopg

from apps.runtime import notify
from apps.runtime.clock import DatabaseClock
from apps.runtime.process import Pulse, Waiter, Watchdog, rest_after
from apps.runtime.sessions import (
    BROKEN,
    Connection,
    connect_fire,
    connect_leader,
    connect_listener,
    connect_upkeep,
    connect_voice,
)
from apps.scheduler.cache import Cache
from apps.scheduler.dispatcher import CATCHUP_RATE, Dispatcher
from apps.scheduler.leadership import Leadership
from apps.scheduler.store import FIRING
from apps.scheduler.sweeper import Sweeper
from apps.scheduler.upkeep import Upkeep
from chrono.rules import zones
from chrono.rules.errors import ChronoError
from chrono.rules.instants import Millis

log = logging.getLogger("chrono.scheduler")

PREPARE_TRIES = 20


class ClockUnfit(ChronoError):
    """The offset to the database's clock jumped, or is known too badly."""


class Scheduler:
    """One scheduler process; :meth:`run` until asked to stop."""

    def __init__(
        self,
        url: str,
        *,
        clock_shift: Millis = 0,
        catchup_rate: float = CATCHUP_RATE,
    ) -> None:
        self._url = url
        self._rate = catchup_rate
        self._shift = clock_shift
        self._clock: DatabaseClock | None = None
        self._served = False
        self._losses = 0
        self.waiter = Waiter()
        self._firing = Pulse("firing")
        self._electing = Pulse("leadership")

    def run(self) -> None:
        """Lead and fire until stopped; reconnect after every loss of the database.

        Raises ``psycopg.OperationalError`` or a :class:`ChronoError` at the start only:
        what is wrong with the address or the server then is for a person. Later losses
        are waited out.
        """
        Watchdog([self._firing, self._electing]).start()
        while not self.waiter.stopping.is_set():
            try:
                self._serve()
            except ClockUnfit:
                # Whatever was decided by that clock is forgotten with the cache.
                log.warning("the clock jumped: everything is given up")
            except (*BROKEN, psycopg.InterfaceError, ChronoError) as e:
                if not self._served:
                    raise
                self._firing.armed = self._electing.armed = False
                log.warning("database lost: %s", str(e).partition("\n")[0])
                self._losses += 1
                self.waiter.wait(rest_after(self._losses))

    def _serve(self) -> None:
        with contextlib.ExitStack() as stack:
            hot = stack.enter_context(connect_fire(self._url, name=FIRING))
            ear = stack.enter_context(connect_listener(self._url, name="chrono ear"))
            notify.listen(ear, notify.JOBS, notify.LEADERSHIP, notify.GATES)
            # A session of its own: a notice that came with the answer to a statement
            # would not be seen on the socket.
            mouth = stack.enter_context(connect_voice(self._url, name="chrono voice"))
            voice = notify.Voice(mouth)
            clock = self._ask_the_time(hot)
            if self.waiter.stopping.is_set():
                return
            dispatcher = Dispatcher(
                hot,
                clock,
                progress=self._firing.beat,
                tell=partial(voice.say, notify.READY),
                catchup_rate=self._rate,
            )
            stack.callback(dispatcher.close)
            upkeep = Upkeep(
                lambda: connect_upkeep(self._url, name="chrono upkeep"),
                clock,
                leads=lambda: 0 in dispatcher.cache.held,
            )
            sweeper = Sweeper(
                lambda: connect_upkeep(self._url, name="chrono sweep"),
                clock,
                leads=lambda: 0 in dispatcher.cache.held,
                lost=self._served,
            )
            self._prepare(upkeep)
            leadership = Leadership(
                lambda: connect_leader(self._url, name="chrono leader"),
                wake=self.waiter.wake,
                pulse=self._electing,
                firing=hot.info.backend_pid,
                excuse=self._firing.beat,
            )
            self._served = True
            self._losses = 0
            stack.callback(upkeep.stop)
            stack.callback(sweeper.stop)
            stack.callback(self._step_down, dispatcher, leadership, voice)
            leadership.start()
            upkeep.start()
            sweeper.start()
            log.info(
                "scheduler %s is up, with the time zones of %s",
                leadership.owner,
                zones.data_version(),
            )
            self._loop(dispatcher, leadership, hot, ear, voice, clock)
            log.info("scheduler %s stops", leadership.owner)

    def _ask_the_time(self, hot: Connection) -> DatabaseClock:
        """Return the clock once it is fit: what it last showed is not forgotten."""
        if self._clock is None:
            self._clock = DatabaseClock(hot, shift=self._shift)
        else:
            self._clock.probe(hot)
        clock = self._clock
        if not clock.fit:
            log.warning(
                "unfit to lead until the clock holds still; it is known to %.1f ms",
                clock.bound_ms,
            )
        while not clock.fit and not self.waiter.stopping.is_set():
            self.waiter.wait(clock.probe_in() / 1000)
            clock.probe_if_old(hot)
        return clock

    def _prepare(self, upkeep: Upkeep) -> None:
        for left in reversed(range(PREPARE_TRIES)):
            try:
                upkeep.prepare()
                return
            except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled):
                if not left:
                    raise
                self.waiter.wait(0.5)

    def _loop(
        self,
        dispatcher: Dispatcher,
        leadership: Leadership,
        hot: Connection,
        ear: Connection,
        voice: notify.Voice,
        clock: DatabaseClock,
    ) -> None:
        while not self.waiter.stopping.is_set():
            self._firing.beat()
            self._firing.armed = bool(dispatcher.cache.held)
            self._hear_leadership(dispatcher, leadership)
            if _has_due(dispatcher.cache, clock.now()):
                # By a time that is wrong, what is to come would be taken for missed.
                clock.probe(hot, probes=1)
            else:
                clock.probe_if_old(hot)
            if not clock.fit:
                raise ClockUnfit
            step = dispatcher.step()
            if lost := dispatcher.take_lost():
                leadership.retake(lost)
            if step.queues:
                voice.say(notify.READY, step.queues)
            if step.held:
                voice.say(notify.GATES, ())
            heard = voice.flush_in()
            wait = step.wait / 1000 if heard is None else min(step.wait / 1000, heard)
            if self.waiter.wait(wait, ear.fileno()):
                self._hear(ear, dispatcher, leadership)
            voice.flush()

    def _hear(
        self, ear: Connection, dispatcher: Dispatcher, leadership: Leadership
    ) -> None:
        for channel in notify.hear(ear):
            if channel == notify.JOBS:
                dispatcher.notice()
            elif channel == notify.GATES:
                dispatcher.notice_gates()
            else:
                leadership.look()

    def _hear_leadership(self, dispatcher: Dispatcher, leadership: Leadership) -> None:
        while True:
            try:
                change = leadership.changes.get_nowait()
            except queue.Empty:
                return
            dispatcher.resign(change.lost)
            dispatcher.adopt(change.gained)

    def _step_down(
        self, dispatcher: Dispatcher, leadership: Leadership, voice: notify.Voice
    ) -> None:
        self._firing.armed = False
        dispatcher.resign(list(dispatcher.cache.held))
        leadership.stop()
        with contextlib.suppress(psycopg.Error, ChronoError):
            voice.say(notify.LEADERSHIP, ())


def _has_due(cache: Cache, now: Millis) -> bool:
    """Return whether the next step decides anything, as far as is known."""
    due = cache.next_due()
    return cache.has_aside() or (due is not None and due <= now)
