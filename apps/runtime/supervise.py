"""A parent that forks its worker processes, keeps them running and stops them together.

It forks before any thread or connection exists: what is forked with them is broken in
the child. The parent itself does nothing else, so nothing in it can break. What is to
be done about a child that died is done by another one.
"""

import contextlib
import logging
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

log = logging.getLogger("chrono.process")

FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 30.0
SOUND_AFTER_S = 60.0
"""A child that lived this long died of something new: its delay starts over."""
STOPPED_BY = (signal.SIGTERM, signal.SIGINT)
HOPELESS = 2
"""The exit code of a child that another start would not help."""

WILL_BYTES = 65_536

Child = Callable[[int, int], int]
"""Runs in a child: given the lifeline and the will, returns the exit code. The lifeline
is a descriptor that becomes readable when the parent is gone. What is written to that
of the will, which never blocks, is for the heir if the child dies."""
Heir = Callable[[bytes], None]
"""Runs in a process of its own, given the will of a child that died."""


def supervise(child: Child, *, count: int, heir: Heir) -> int:
    """Keep ``count`` processes running until SIGTERM or SIGINT; return the exit code.

    Signals are passed on to all. 0 means that every child ended with 0 after being told
    to stop. A child that ends unasked is started again after 1, 2, 4 … 30 s, unless its
    exit code is HOPELESS: then all are stopped. One that ends otherwise than by 0 and
    has left a will gets the ``heir``. Call it on the main thread.
    """
    return _Parent(child, count, heir).run()


@dataclass(frozen=True, slots=True)
class _Birth:
    at: float
    will: int


class _Parent:
    def __init__(self, child: Child, count: int, heir: Heir) -> None:
        self._child = child
        self._count = count
        self._heir = heir
        self._born: dict[int, _Birth] = {}
        self._heirs: set[int] = set()
        self._due: list[float] = []
        self._delay = FIRST_DELAY_S
        self._stopping = False
        self._exit = 0
        # Only the parent keeps the mouth open: its end is the children's sign.
        self._lifeline, self._mouth = os.pipe()

    def run(self) -> int:
        ear, bell = os.pipe()
        os.set_blocking(bell, False)
        signal.set_wakeup_fd(bell, warn_on_full_buffer=False)
        kept = {
            number: signal.signal(number, lambda *_: None)
            for number in (*STOPPED_BY, signal.SIGCHLD)
        }
        self._inner = (ear, bell)
        try:
            for _ in range(self._count):
                self._bear()
            while self._born or self._heirs or (self._due and not self._stopping):
                self._wait(ear)
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in kept.items():
                signal.signal(number, handler)
            for fd in (ear, bell, self._lifeline, self._mouth):
                os.close(fd)
        return self._exit

    def _wait(self, ear: int) -> None:
        now = time.monotonic()
        timeout = max(0.0, min(self._due) - now) if self._due else None
        readable, _, _ = select.select([ear], [], [], timeout)
        if readable:
            for number in os.read(ear, 64):
                if number in STOPPED_BY:
                    self._stop(number)
        self._reap()
        self._start_due()

    def _stop(self, number: int) -> None:
        self._stopping = True
        self._due.clear()
        for pid in self._born:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _reap(self) -> None:
        while self._born or self._heirs:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            self._heirs.discard(pid)
            birth = self._born.pop(pid, None)
            if birth is not None:
                code = os.waitstatus_to_exitcode(status)
                self._execute_will(birth.will, code)
                self._bury(pid, code, time.monotonic() - birth.at)

    def _execute_will(self, will: int, code: int) -> None:
        with contextlib.suppress(BlockingIOError):
            if code and (text := os.read(will, WILL_BYTES)):
                self._heirs.add(self._fork(partial(self._inherit, text)))
        os.close(will)

    def _inherit(self, text: bytes) -> int:
        self._heir(text)
        return 0

    def _bury(self, pid: int, code: int, lived: float) -> None:
        if self._stopping:
            self._exit = self._exit or (1 if code else 0)
            return
        facts = {"pid": pid, "code": code}
        if code == HOPELESS:
            self._exit = HOPELESS
            self._stop(signal.SIGTERM)
            return
        if lived >= SOUND_AFTER_S:
            self._delay = FIRST_DELAY_S
        log.error(
            "a process ended; another starts in %g s",
            self._delay,
            extra={"facts": facts},
        )
        self._due.append(time.monotonic() + self._delay)
        self._delay = min(LONGEST_DELAY_S, self._delay * 2)

    def _start_due(self) -> None:
        now = time.monotonic()
        ripe = [due for due in self._due if due <= now]
        for due in ripe:
            self._due.remove(due)
            self._bear()

    def _bear(self) -> None:
        will, pen = os.pipe()
        os.set_blocking(will, False)
        os.set_blocking(pen, False)
        pid = self._fork(partial(self._child, self._lifeline, pen))
        os.close(pen)
        self._born[pid] = _Birth(time.monotonic(), will)

    def _fork(self, live: Callable[[], int]) -> int:
        # A signal that meets the child before it has forgotten the parent's handlers
        # would be swallowed by them: it waits until then.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPED_BY)
        pid = os.fork()
        if pid:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPED_BY)
            return pid
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (*STOPPED_BY, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPED_BY)
            for fd in (*self._inner, self._mouth):
                os.close(fd)
            code = live()
        except BaseException:
            # Nothing may climb into the parent's code.
            log.exception("a process failed")
        finally:
            logging.shutdown()
            os._exit(code)
