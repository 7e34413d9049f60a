"""Hearing that runs became ready. A notice is a hint; polling is the truth."""

import asyncio
import logging
from collections.abc import Callable, Collection

import psycopg

from apps.runtime import notify
from apps.runtime.sessions import Connection, connect_listener
from apps.worker.lines import Line
from apps.worker.pauses import Pauses

log = logging.getLogger("chrono.worker")


def is_for(payload: str, queues: Collection[str]) -> bool:
    """Return whether a notice names one of these queues, or none at all."""
    return not payload or not set(payload.split(",")).isdisjoint(queues)


class Listener:
    """Calls ``wake`` when a notice is for one of ``queues``."""

    def __init__(
        self, *, url: str, queues: Collection[str], wake: Callable[[], None]
    ) -> None:
        self._url = url
        self._queues = queues
        self._wake = wake

    async def run(self) -> None:
        """Listen until cancelled, over broken sessions."""
        line = Line("listen", connect=self._connect)
        try:
            await self._listen(line)
        finally:
            await line.close()

    async def _listen(self, line: Line) -> None:
        pauses = Pauses()
        while True:
            try:
                conn = await line.call(lambda conn: conn)
                pauses.reset()
                await self._hear(conn)
            except psycopg.Error as error:
                await pauses.wait(f"listening failed: {error}", log)

    def _connect(self) -> Connection:
        conn = connect_listener(self._url, name="chrono worker listen")
        notify.listen(conn, notify.READY)
        return conn

    async def _hear(self, conn: Connection) -> None:
        """Take notices off the socket as they come; raise what ends the session."""
        loop = asyncio.get_running_loop()
        broken: asyncio.Future[None] = loop.create_future()

        def readable() -> None:
            try:
                self._take(conn)
            except psycopg.Error as error:
                if not broken.done():
                    broken.set_exception(error)

        fileno = conn.fileno()
        loop.add_reader(fileno, readable)
        try:
            await broken
        finally:
            loop.remove_reader(fileno)
            conn.close()

    def _take(self, conn: Connection) -> None:
        conn.pgconn.consume_input()
        while (notice := conn.pgconn.notifies()) is not None:
            if is_for(notice.extra.decode(errors="replace"), self._queues):
                self._wake()
