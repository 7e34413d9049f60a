"""A worker process: lives one after the other until it is told to stop."""

import asyncio
import gc
import logging
import signal
import socket
import sys
import uuid
from collections.abc import Callable
from functools import partial

import psycopg

from apps.worker import tails
from apps.worker.child import serve_child
from apps.worker.children import Children
from apps.worker.config import Config
from apps.worker.handlers.http import Transport
from apps.worker.heir import bequeath
from apps.worker.hire import Hire
from apps.worker.life import Life, LifeLost
from apps.worker.nursery import start_nursery
from apps.worker.pauses import wait_within
from chrono.tasks import Registry

log = logging.getLogger("chrono.worker")

SWITCH_INTERVAL_S = 0.0005
"""After this long a busy loop lets in the thread that has a claim's answer."""
ECHO_S = 1.0
"""Signals closer together are one: a group is told, and again by its parent."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 4.0


class Worker:
    """Claims, executes and settles until stopped. Make it on the loop that runs it."""

    def __init__(
        self,
        config: Config,
        *,
        registry: Registry,
        nursery: socket.socket | None = None,
        begins: Callable[[uuid.UUID], None] | None = None,
    ) -> None:
        """``begins`` is told of each life, before it holds anything."""
        self._nursery = nursery
        self.config = config
        self._begins = begins
        self._hire = Hire(config.queues)
        self._registry = registry
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._told = 0.0
        self._useless = False

    def give_up(self, why: str) -> None:
        """Stop because nothing more can be done here; another process may."""
        if not self._useless:
            self._useless = True
            log.error("this process ends: %s", why)
            self._stop.set()

    def stop(self) -> None:
        """Claim no more and drain; told again, hand back at once what still runs."""
        now = asyncio.get_running_loop().time()
        if not self._stop.is_set():
            self._told = now
            self._stop.set()
        elif now - self._told >= ECHO_S:
            self._hurry.set()

    async def run(self) -> bool:
        """Work until stopped; return whether everything was settled or handed back.

        False as well where it gave up, so that another process is started. Raises
        ChronoError where the database's address can never serve.
        """
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        transport = Transport(self.config.openings)
        keeper = tails.install()
        children = None
        if self._nursery is not None:
            lost = partial(self.give_up, "no process for tasks can be started any more")
            children = Children(self._nursery, lost=lost)
        try:
            return await self._run(transport, children)
        finally:
            if children is not None:
                children.close()
            logging.getLogger().removeHandler(keeper)
            self._hire.stop()
            await transport.close()

    async def _run(self, transport: Transport, children: Children | None) -> bool:
        previous: uuid.UUID | None = None
        pause = FIRST_PAUSE_S
        while not self._stop.is_set():
            life = Life(
                config=self.config,
                registry=self._registry,
                transport=transport,
                hire=self._hire,
                stuck=partial(self.give_up, "no handler here stops any more"),
                children=children,
                previous=previous,
            )
            if self._begins is not None:
                self._begins(life.worker)
            facts = {
                "worker": life.worker,
                "queues": ",".join(self.config.queues),
                "concurrency": self.config.concurrency,
            }
            log.info("worker starts", extra={"facts": facts})
            try:
                clean = await life.run(stop=self._stop, hurry=self._hurry)
            except LifeLost as error:
                previous, pause = life.worker, FIRST_PAUSE_S
                log.error("worker lost its leases: %s", error, extra={"facts": facts})
            except psycopg.Error as error:
                log.error("no database: %s; again in %g s", error, pause)
                await wait_within(self._stop, pause)
                pause = min(LONGEST_PAUSE_S, pause * 2)
            else:
                log.info(
                    "worker stopped" if clean else "worker stopped with leases left",
                    extra={"facts": {"worker": life.worker}},
                )
                return clean and not self._useless
        return previous is None and not self._useless


def serve(
    config: Config,
    *,
    registry: Registry,
    lifeline: int | None = None,
    will: int | None = None,
) -> int:
    """Run a worker in this process until a signal; return the exit code.

    ``lifeline`` is a descriptor that becomes readable when the parent process is gone,
    ``will`` one to write down who this is, for the case of death.
    Raises ChronoError as :meth:`Worker.run` does. End the process soon afterwards, by
    ``os._exit``: a thread that a handler hangs in would hold up any other end.
    """
    # First: it must have neither the threads nor the sessions that follow.
    nursery = (
        start_nursery(partial(serve_child, registry))
        if registry.has_isolated()
        else None
    )
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # What was imported stays: to look through it in every full collection would stop
    # all runs for some 80 ms.
    gc.freeze()

    async def main() -> bool:
        worker = Worker(
            config,
            registry=registry,
            nursery=nursery,
            begins=None if will is None else partial(bequeath, will),
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.stop)
        if lifeline is not None:

            def orphaned() -> None:
                loop.remove_reader(lifeline)
                worker.stop()

            loop.add_reader(lifeline, orphaned)
        return await worker.run()

    # Not asyncio.run(): it would wait for threads that handlers left behind.
    return 0 if asyncio.Runner().run(main()) else 1
