"""A thread that works while this process is the keeper: the leader of partition 0."""

import abc
import logging
import threading
from collections.abc import Callable
from typing import override

import psycopg

from apps.runtime.sessions import Connection

log = logging.getLogger("chrono.upkeep")


class Keeper(threading.Thread, abc.ABC):
    """Calls :meth:`step` every ``every_s`` while ``leads()``, on a session of its own.

    Give it a ``step``; a session that failed is replaced before the next one.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Connection],
        *,
        leads: Callable[[], bool],
        every_s: float,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.every_s = every_s
        self.keeps = False
        """Whether the last step was one of this keeper."""
        self._connect = connect
        self._leads = leads
        self._conn: Connection | None = None
        self._stopping = threading.Event()

    @override
    def run(self) -> None:
        """Step until told to stop, whatever a step raises."""
        while not self._stopping.wait(self.every_s):
            if not self._leads():
                self.keeps = False
                self.close()
                continue
            try:
                self.step()
                self.keeps = True
            except psycopg.Error as error:
                log.warning("%s put off: %s", self.name, str(error).partition("\n")[0])
                if self._conn is None or self._conn.closed:
                    self.cut_off()
                self.close()
            except Exception:
                # Nobody would miss this thread for hours.
                log.exception("%s failed, and tries again", self.name)
                self.close()
        self.close()

    def stop(self) -> None:
        """End the thread; returns when its present step is over, or after 2 s."""
        self._stopping.set()
        if self.is_alive():
            self.join(timeout=2.0)

    @abc.abstractmethod
    def step(self) -> None:
        """Do what is due."""

    def cut_off(self) -> None:
        """Do what is to be done when the session broke, or could not be had."""

    def session(self) -> Connection:
        """Return the session, connected anew after a failure."""
        if self._conn is None or self._conn.closed:
            self._conn = self._connect()
        return self._conn

    def close(self) -> None:
        """End the session."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None
