"""A database session on a thread of its own, called from the event loop.

Rooms have one store API, of plain blocking sessions; a line lets the loop use it
without waiting. Calls on one line run one after the other.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import psycopg

from apps.runtime.sessions import BROKEN, Connection

T = TypeVar("T")


class Line:
    """One session and its thread; it connects when first called and after a break."""

    def __init__(self, name: str, *, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._conn: Connection | None = None

    async def call(self, function: Callable[[Connection], T]) -> T:
        """Return what ``function`` returns, given the session, in the line's thread.

        Raises what it raises, and what connecting raises. A cancelled call goes on in
        the thread; its answer is lost.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._call, function)

    def _call(self, function: Callable[[Connection], T]) -> T:
        if self._conn is None or self._conn.closed:
            self._conn = self._connect()
        try:
            return function(self._conn)
        except BROKEN:
            # Whatever state it is in, a new session is known to be sound.
            self._conn.close()
            raise

    async def close(self) -> None:
        """End the session, within a second even if a call waits for a paused server."""
        closing = asyncio.get_running_loop().run_in_executor(
            self._thread, self._hang_up
        )
        self._thread.shutdown(wait=False)
        done, _ = await asyncio.wait([closing], timeout=1)
        if not done and self._conn is not None:
            sever(self._conn)

    def _hang_up(self) -> None:
        if self._conn is not None:
            self._conn.close()


def sever(conn: Connection) -> None:
    """Shut the session's socket, so that a thread that waits on it gets an error.

    Closing the session itself would pull the socket from under that thread.
    """
    with contextlib.suppress(OSError, psycopg.Error):
        copy = socket.socket(fileno=os.dup(conn.fileno()))
        try:
            copy.shutdown(socket.SHUT_RDWR)
        finally:
            copy.close()
