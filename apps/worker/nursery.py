"""The process that forks those in which tasks are isolated.

It is itself forked from a worker before that has threads or sessions, and has neither:
so what it forks is sound, begins with all modules imported, and takes milliseconds. It
tells the worker how each of them ended. Once the worker is gone, however it went, it
kills them all: what they do would count for nothing.
"""

import contextlib
import ctypes
import gc
import logging
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable

log = logging.getLogger("chrono.worker")

FRAME = struct.Struct("!cii")
"""Kind, process id, status."""
FORK, KILL, ENDED = b"F", b"K", b"E"
PR_SET_PDEATHSIG = 1

Child = Callable[[int, int], None]
"""Runs in a process of its own: given its channel and where its output goes."""


def start_nursery(child: Child) -> socket.socket:
    """Fork the nursery; return the socket by which it is told what to do.

    Call it before this process has threads. It ends once the socket is closed.
    """
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fork():
        theirs.close()
        return ours
    code = 1
    try:
        ours.close()
        _Nursery(theirs, child).run()
        code = 0
    except BaseException:
        # Nothing may climb into the worker's code.
        log.exception("the process that forks those of tasks failed")
    finally:
        os._exit(code)


class _Nursery:
    def __init__(self, control: socket.socket, child: Child) -> None:
        self._control = control
        self._child = child
        self._living: set[int] = set()
        self._ear, self._bell = os.pipe()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            # Out of the terminal's group: what is typed there is for the worker.
            os.setsid()
        # A platform may signal every process of a machine. The worker decides when
        # its tasks end. No SIG_IGN, which programs that a task starts would inherit.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, _nothing)
        os.set_blocking(self._bell, False)
        signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False)
        gc.collect()
        gc.freeze()
        try:
            while self._step():
                pass
        finally:
            for pid in self._living:
                _kill(pid)

    def _step(self) -> bool:
        """Do what is asked or tell who ended; return whether the worker is there."""
        control = self._control.fileno()
        readable, _, _ = select.select([control, self._ear], [], [])
        if self._ear in readable:
            os.read(self._ear, 4096)
            self._reap()
        if control not in readable:
            return True
        try:
            data, fds, _, _ = socket.recv_fds(self._control, FRAME.size, 2)
        except ConnectionError:
            return False
        while data and len(data) < FRAME.size:
            data += self._control.recv(FRAME.size - len(data))
        if not data:
            return False
        kind, pid, _ = FRAME.unpack(data)
        if kind == FORK and len(fds) == 2:
            self._fork(fds)
        elif kind == KILL and pid in self._living:
            _kill(pid)
        return True

    def _reap(self) -> None:
        for pid in list(self._living):
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done:
                continue
            self._living.discard(pid)
            # What it has started and left behind goes with it.
            _kill(pid)
            with contextlib.suppress(OSError):
                code = os.waitstatus_to_exitcode(status)
                self._control.sendall(FRAME.pack(ENDED, pid, code))

    def _fork(self, fds: list[int]) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            # The worker sees the channel close without a word.
            log.error("a process for a task cannot be forked: %s", error)
            pid = -1
        if pid:
            if pid > 0:
                self._living.add(pid)
            for fd in fds:
                os.close(fd)
            return
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            self._control.close()
            os.close(self._ear)
            os.close(self._bell)
            _die_with_parent()
            self._child(*fds)
            code = 0
        except BaseException:
            log.exception("a process for tasks failed")
        finally:
            logging.shutdown()
            os._exit(code)


def _nothing(number: int, frame: object) -> None:
    """Take a signal and do nothing about it."""


def _kill(pid: int) -> None:
    """Kill a child with all of its group, which it leads."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _die_with_parent() -> None:
    """Have the kernel kill this process when the nursery ends, where it can."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
