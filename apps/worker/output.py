"""What a task's process prints: passed on up to a bound, its end kept for the error.

Reading pauses after each piece. So a task that prints without end waits for its pipe,
and takes a few percent of the worker's loop at most.
"""

import asyncio
import contextlib
import fcntl
import os
import sys

PIECE = 256 * 1024
PAUSE_S = 0.005
PASSED_ON = 1024 * 1024
"""Bytes of one run that go to the worker's own output."""
TAIL = 8 * 1024
"""Bytes of the last that was printed."""
LONGEST_LINE = 8 * 1024
LEFT_OUT = b"[more was printed and is left out]\n"


class Output:
    """The output of one process; made on the loop, with a descriptor of its own."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd
        self._loop = asyncio.get_running_loop()
        self._tail = b""
        self._rest = b""
        self._left = PASSED_ON
        os.set_blocking(fd, False)
        with contextlib.suppress(OSError, AttributeError):
            # A piece holds no more than the pipe does, 64 KiB unless asked.
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIECE)
        self._listen()

    def begin(self) -> None:
        """Begin with another run: its bound is its own."""
        self._tail, self._rest, self._left = b"", b"", PASSED_ON

    def tail(self) -> str:
        """Return the last that was printed, what lies in the pipe included."""
        for _ in range(8):
            if not self._take():
                break
        return self._tail.decode(errors="replace").strip()

    def close(self) -> None:
        """Pass on the last unfinished line and listen no more."""
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            self._take()
            self._close()
            self._pass_on(self._rest)

    def _listen(self) -> None:
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._readable)

    def _readable(self) -> None:
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
        if self._take():
            self._loop.call_later(PAUSE_S, self._listen)

    def _take(self) -> bool:
        """Read a piece; return whether there was one."""
        if self._fd is None:
            return False
        try:
            piece = os.read(self._fd, PIECE)
        except BlockingIOError:
            self._listen()
            return False
        except OSError:
            piece = b""
        if not piece:
            self._close()
            return False
        self._tail = (self._tail + piece)[-TAIL:]
        if self._left > 0:
            lines, newline, rest = (self._rest + piece).rpartition(b"\n")
            if len(rest) > LONGEST_LINE:
                lines, newline, rest = lines + newline + rest, b"\n", b""
            self._rest = rest
            self._pass_on(lines + newline)
        return True

    def _pass_on(self, text: bytes) -> None:
        if not text:
            return
        shown = text[: max(0, self._left)]
        self._left -= len(text)
        if self._left <= 0:
            shown, self._rest = shown + b"\n" + LEFT_OUT, b""
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.write(shown.decode(errors="replace"))
            sys.stdout.flush()

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            self._loop.remove_reader(fd)
            os.close(fd)
