"""One life of a worker process: from its row in `worker` to the end of that row.

A worker that was marked dead, or could not beat for so long that it must think so, has
lost its leases: it stops what it runs, drops the results and begins a new life.
"""

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from apps.runs import worker_store
from apps.runs.store import Settlement
from apps.runtime.clock import DatabaseClock
from apps.runtime.sessions import Connection, connect_hot
from apps.timers import store as timers
from apps.worker.beats import Beat, hold
from apps.worker.children import Children
from apps.worker.claims import Claimer
from apps.worker.config import Config
from apps.worker.execute import Executor
from apps.worker.gates import Gates
from apps.worker.handlers.http import Transport
from apps.worker.hire import Hire
from apps.worker.lines import Line
from apps.worker.notes import Noter
from apps.worker.onces import Sessions
from apps.worker.prepare import Prepare
from apps.worker.seats import Seats
from apps.worker.settles import Settler
from apps.worker.targets import Targets
from apps.worker.threads import Threads
from apps.worker.wakes import Listener
from chrono.rules.errors import ChronoError
from chrono.rules.instants import Millis
from chrono.rules.lease import trusted_until
from chrono.tasks import Registry

log = logging.getLogger("chrono.worker")

CANCEL_GRACE_S = 1.0
"""How long handlers that were called off get to end, and those that were killed."""
SETTLE_RESERVE_S = 3.0
"""What is kept of the drain for the last settles."""


class LifeLost(ChronoError):
    """The worker's leases are no longer its own."""


class Life:
    """The sessions, loops and executions of one registration."""

    def __init__(
        self,
        *,
        config: Config,
        registry: Registry,
        transport: Transport,
        hire: Hire,
        stuck: Callable[[], None],
        children: Children | None = None,
        previous: uuid.UUID | None = None,
    ) -> None:
        self.worker = uuid.uuid4()
        self._stuck = stuck
        self._children = children
        self._config = config
        self._registry = registry
        self._transport = transport
        self._hire = hire
        self._previous = previous
        self._loop = asyncio.get_running_loop()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._claim_line = self._line("claim")
        self._settle_line = self._line("settle")
        self._note_line = self._line("notes")
        self._sessions = Sessions(config.url)
        self._threads = Threads(config.concurrency)
        self._seats = Seats(config.concurrency)
        self._tasks: list[asyncio.Task[None]] = []
        self._beat: Beat | None = None
        self._executor: Executor | None = None
        self._noter: Noter | None = None

    async def run(self, *, stop: asyncio.Event, hurry: asyncio.Event) -> bool:
        """Work until ``stop``, then drain; ``hurry`` cuts the draining short.

        Returns whether everything was settled or handed back. Raises
        :class:`LifeLost` when the leases are lost, ``psycopg.Error`` where the first
        words with the database fail, ChronoError where they can never succeed.
        """
        try:
            return await self._live(stop=stop, hurry=hurry)
        finally:
            await self._end()

    async def _live(self, *, stop: asyncio.Event, hurry: asyncio.Event) -> bool:
        clock = await self._claim_line.call(DatabaseClock)
        beat = self._beat = await self._register(clock)
        gates = Gates()
        settler = Settler(
            line=self._settle_line,
            clock=clock,
            tell=gates.tell,
            horizon=lambda: beat.horizon,
            answered=self._answered,
        )
        self._noter = noter = Noter(
            line=self._note_line,
            settle=settler.put,
            lost=self._lost_leases,
            monotonic=self._monotonic,
        )
        targets = Targets(
            Prepare(
                registry=self._registry,
                threads=self._threads,
                transport=self._transport,
                clock=clock,
                webhook_key=self._config.webhook_key,
                children=self._children,
            )
        )
        self._executor = executor = Executor(
            seats=self._seats,
            targets=targets,
            gates=gates,
            settler=settler,
            noter=noter,
            sessions=self._sessions,
            clock=clock,
        )
        wake = asyncio.Event()
        claimer = Claimer(
            line=self._claim_line,
            worker=self.worker,
            queues=self._config.queues,
            seats=self._seats,
            targets=targets,
            gates=gates,
            executor=executor,
            wake=wake,
            clock=clock,
            monotonic=self._monotonic,
            is_fit=lambda: clock.fit,
            alone=stop.set if self._config.alone else None,
        )
        listener = Listener(
            url=self._config.url, queues=self._config.queues, wake=wake.set
        )
        beat.start()
        self._begin(settler.run())
        self._begin(noter.run())
        self._begin(self._watch(beat))
        self._begin(listener.run())
        claiming = self._begin(claimer.run())
        await self._unless_lost(stop.wait())

        claimer.stop()
        await self._unless_lost(self._empty(executor, hurry))
        await asyncio.wait([claiming], timeout=CANCEL_GRACE_S)
        try:
            async with asyncio.timeout(SETTLE_RESERVE_S):
                await self._unless_lost(noter.wait_done())
                await self._unless_lost(settler.wait_done())
                beat.stop()
                await self._settle_line.call(
                    lambda conn: worker_store.stop_worker(conn, worker=self.worker)
                )
        except TimeoutError:
            return False
        return True

    async def _register(self, clock: DatabaseClock) -> Beat:
        sent = self._monotonic()

        def register(conn: Connection) -> Millis:
            if self._previous is not None:
                # What the lost life still holds need not wait for its lease to expire.
                worker_store.stop_worker(conn, worker=self._previous)
            worker_store.register_worker(
                conn,
                worker=self.worker,
                host=socket.gethostname(),
                pid=os.getpid(),
                concurrency=self._config.concurrency,
                queues=self._config.queues,
                held=True,
                alone=self._config.alone,
                tasks=self._registry.names(),
            )
            return timers.read_dispatch_state(conn).horizon

        horizon = await self._settle_line.call(register)
        return Beat(
            url=self._config.url,
            worker=self.worker,
            clock=clock,
            monotonic=self._monotonic,
            loop=self._loop,
            told=self._told,
            hire=self._hire.start if self._config.hires else None,
            queues=self._config.queues,
            trusted_until=trusted_until(sent),
            horizon=horizon,
        )

    async def _empty(self, executor: Executor, hurry: asyncio.Event) -> None:
        """Wait for the handlers; after a while call them off and hand back the rest."""
        patience = self._config.drain_s - SETTLE_RESERVE_S - 2 * CANCEL_GRACE_S
        empty = asyncio.ensure_future(self._seats.wait_empty())
        hurried = asyncio.ensure_future(hurry.wait())
        try:
            await asyncio.wait(
                [empty, hurried],
                timeout=max(0.0, patience),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not empty.done():
                executor.call_off()
                await asyncio.wait([empty], timeout=CANCEL_GRACE_S)
                if executor.kill():
                    await asyncio.wait([empty], timeout=CANCEL_GRACE_S)
                executor.give_up()
        finally:
            empty.cancel()
            hurried.cancel()

    async def _watch(self, beat: Beat) -> None:
        """Raise once the last confirmed beat is too old to trust the leases."""
        while (left := beat.trusted_until - self._monotonic()) > 0:
            await asyncio.sleep(left / 1000)
        raise LifeLost("no beat came through for too long")

    def _told(self, cancelled: list[uuid.UUID] | None) -> None:
        if cancelled is None:
            self._lose(LifeLost("this worker was marked dead"))
        elif self._executor is not None:
            self._executor.cancel(cancelled)

    def _answered(self, batch: Sequence[Settlement], held: set[uuid.UUID]) -> None:
        for run in self._seats.answered(batch, held):
            if self._noter is not None:
                self._noter.forget(run)
        if self._seats.is_stuck:
            self._stuck()

    def _lost_leases(self, tokens: set[uuid.UUID]) -> None:
        if self._executor is not None:
            self._executor.lose(tokens)

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._lose(error)

    def _lose(self, error: BaseException) -> None:
        if not self._lost.done():
            self._lost.set_exception(error)

    async def _unless_lost(self, goal: Coroutine[Any, Any, Any]) -> None:
        """Return when ``goal`` does; raise what ends this life if that is first."""
        reached = asyncio.ensure_future(goal)
        try:
            await asyncio.wait(
                [reached, self._lost], return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            reached.cancel()
        if self._lost.done():
            self._lost.result()
        reached.result()

    async def _end(self) -> None:
        if self._executor is not None:
            self._executor.abandon()
        if self._beat is not None:
            self._beat.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        lines = (self._claim_line, self._settle_line, self._note_line)
        await asyncio.gather(*(line.close() for line in lines))
        self._threads.end()
        self._sessions.close()
        if self._lost.done():
            self._lost.exception()

    def _line(self, name: str) -> Line:
        def connect() -> Connection:
            conn = connect_hot(self._config.url, name=f"chrono worker {name}")
            return hold(conn, worker=self.worker)

        return Line(name, connect=connect)

    def _monotonic(self) -> Millis:
        return int(self._loop.time() * 1000)
