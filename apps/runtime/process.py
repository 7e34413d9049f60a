"""The shell of a long-running process: signals, a waiter that wakes, a watchdog.

A process is a small loop around a ``step()`` that returns how long to wait. Tests call
the step; only this module waits.
"""

import contextlib
import logging
import os
import secrets
import select
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

log = logging.getLogger("chrono.process")

HUNG_S = 4.0
WATCH_EVERY_S = 0.5
HUNG_EXIT_CODE = 75
LAST_WORDS_S = 0.5
FIRST_REST_S, LONGEST_REST_S = 0.25, 4.0


def rest_after(losses: int) -> float:
    """Return the seconds to wait for the database after so many losses in a row.

    Twice as long each time, up to four seconds: a longer rest would end long after the
    database is back. Drawn from the upper half, so that not all come back at once.
    """
    longest = min(LONGEST_REST_S, FIRST_REST_S * 2 ** min(losses - 1, 10))
    return float(longest * (1 + secrets.randbelow(1_000) / 1_000) / 2)


class Waiter:
    """A wait that other threads and signals can end."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self.stopping = threading.Event()

    def wake(self) -> None:
        """End the present or the next wait."""
        with contextlib.suppress(BlockingIOError):  # A full pipe wakes as well.
            os.write(self._write, b"!")

    def stop(self) -> None:
        """Ask the process to stop, and end its wait."""
        self.stopping.set()
        self.wake()

    def wait(self, seconds: float, *also: int) -> bool:
        """Wait that long, or until woken, or until one of ``also`` can be read.

        Returns whether it was one of those.
        """
        if seconds <= 0 and not also:
            return False
        ready, _, _ = select.select([self._read, *also], [], [], max(0.0, seconds))
        if self._read in ready:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._read, 1024):
                    pass
        return any(fd in ready for fd in also)

    def stop_on_signals(self) -> None:
        """Turn SIGTERM and SIGINT into :meth:`stop`."""

        def on_signal(number: int, _frame: FrameType | None) -> None:
            self.stop()

        signal.signal(signal.SIGTERM, on_signal)
        signal.signal(signal.SIGINT, on_signal)


class Pulse:
    """Signs of life of one loop; the watchdog listens while it is armed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._beaten = time.monotonic()
        self.armed = False

    def beat(self) -> None:
        """Say that the loop has made progress."""
        self._beaten = time.monotonic()

    def silent_for(self) -> float:
        """Return the seconds since the last progress; 0 while not armed."""
        return time.monotonic() - self._beaten if self.armed else 0.0


class Watchdog(threading.Thread):
    """Ends the process when an armed loop hangs.

    No timeout of Postgres or of TCP frees a client whose server is paused: it would go
    on believing that it leads. A process that was paused as a whole is another matter:
    the watchdog slept too, sees so, and gives its loops their time again.
    """

    def __init__(
        self, pulses: list[Pulse], *, exit_now: Callable[[int], None] = os._exit
    ) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._pulses = pulses
        self._exit = exit_now
        self._looked = time.monotonic()

    def run(self) -> None:
        """Look twice a second, for as long as the process lives."""
        while True:
            time.sleep(WATCH_EVERY_S)
            self.look()

    def look(self) -> None:
        """End the process if a loop has hung for too long."""
        now = time.monotonic()
        slept = now - self._looked
        self._looked = now
        if slept > 4 * WATCH_EVERY_S:
            for pulse in self._pulses:
                pulse.beat()
            return
        for pulse in self._pulses:
            if pulse.silent_for() > HUNG_S:
                _say_last(f"{pulse.name} made no progress for 4 s: exiting")
                self._exit(HUNG_EXIT_CODE)


def _say_last(words: str) -> None:
    # What hung may hold the log: the end must not wait for it.
    def say() -> None:
        log.critical(words)
        logging.shutdown()

    speaker = threading.Thread(target=say, name="last words", daemon=True)
    speaker.start()
    speaker.join(LAST_WORDS_S)
