"""The processes in which a worker executes isolated tasks: lent, reused, killed."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

from apps.worker import frames
from apps.worker.nursery import ENDED, FORK, FRAME, KILL
from apps.worker.output import Output

log = logging.getLogger("chrono.worker")

MOST_RUNS = 500
"""After so many a process is let go, with what leaked in them."""
IDLE_S = 60.0
START_S = 10.0
END_S = 2.0
TOLD = 2_000
"""Characters of the last that was printed, in the error of a crash."""


class NoChild(Exception):
    """No process could be started."""


class Child:
    """One process, lent to one execution at a time."""

    def __init__(
        self,
        *,
        pid: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        output: Output,
        kill: Callable[[int], None],
    ) -> None:
        self.pid = pid
        self.output = output
        self.runs = 0
        self.code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Its exit code once it has ended, or its signal as a negative number."""
        self._reader = reader
        self._writer = writer
        self._kill = kill

    @property
    def is_alive(self) -> bool:
        """Whether it can still be talked to."""
        return not self._reader.at_eof() and not self.code.done()

    def begin(self, order: dict[str, Any]) -> None:
        """Have it execute something. Raises :class:`~frames.BadFrame` if too long."""
        self.output.begin()
        self.runs += 1
        self._writer.write(frames.pack({"do": "run", **order}))

    async def hear(self) -> dict[str, Any] | None:
        """Return what it says next; None once it is gone, or makes no sense."""
        try:
            return await frames.read(self._reader)
        except frames.BadFrame:
            return None

    def cancel(self) -> None:
        """Tell it that what it executes is called off."""
        self._tell({"do": "cancel"})

    def answer(self, message: dict[str, Any]) -> None:
        """Tell it what it asked for; nobody hears it once it is gone."""
        self._tell(message)

    def kill(self) -> None:
        """End it and all that it has started, at once."""
        if not self.code.done():
            self._kill(self.pid)

    def close(self) -> None:
        """Let go of it; a sound one ends by that."""
        self._writer.close()
        self.output.close()

    async def obituary(self) -> str:
        """Return how it ended and what it printed last; waits a little for that."""
        try:
            code = await asyncio.wait_for(asyncio.shield(self.code), END_S)
        except TimeoutError:
            self.kill()
            how = "does not answer any more"
        else:
            how = _how(code)
        said = self.output.tail()[-TOLD:]
        words = f"The process of the task {how}."
        return f"{words}\nThe last that it printed:\n{said}" if said else words

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write(frames.pack(message))


class Children:
    """The processes of one worker. Make it on the loop that uses it."""

    def __init__(self, control: socket.socket, *, lost: Callable[[], None]) -> None:
        self._control = control
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._known: dict[int, Child] = {}
        self._idle: list[Child] = []
        self._most_idle = os.cpu_count() or 1
        self._heard = b""
        control.setblocking(False)
        self._loop.add_reader(control, self._hear)

    async def take(self) -> Child:
        """Return a process that nobody else has. Raises :class:`NoChild`."""
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            child.close()
        return await self._start()

    def give_back(self, child: Child) -> None:
        """Take a sound process back, for the next one unless it is old or gone."""
        if child.runs >= MOST_RUNS or not child.is_alive:
            child.close()
            return
        self._idle.append(child)
        if len(self._idle) > self._most_idle:
            self._idle.pop(0).close()
        else:
            self._loop.call_later(IDLE_S, self._retire, child, child.runs)

    def end(self, child: Child) -> None:
        """Kill a process, whatever it does."""
        child.kill()
        child.close()

    def close(self) -> None:
        """Have every process ended; the nursery sees to it."""
        self._loop.remove_reader(self._control)
        self._control.close()
        for child in list(self._known.values()):
            child.close()
        self._known.clear()

    async def _start(self) -> Child:
        ours, theirs = socket.socketpair()
        listen, output = os.pipe()
        try:
            socket.send_fds(
                self._control,
                [FRAME.pack(FORK, 0, 0)],
                [theirs.fileno(), output],
            )
        except OSError as error:
            ours.close()
            os.close(listen)
            raise NoChild(str(error)) from None
        finally:
            theirs.close()
            os.close(output)
        reader, writer = await asyncio.open_connection(sock=ours)
        printed = Output(listen)
        try:
            pid = await self._hello(reader)
        except BaseException:
            # Without its channel it ends by itself.
            writer.close()
            printed.close()
            raise
        child = Child(
            pid=pid, reader=reader, writer=writer, output=printed, kill=self._kill
        )
        self._known[pid] = child
        return child

    async def _hello(self, reader: asyncio.StreamReader) -> int:
        try:
            hello = await asyncio.wait_for(frames.read(reader), START_S)
        except TimeoutError:
            raise NoChild("it did not begin") from None
        except frames.BadFrame as error:
            raise NoChild(str(error)) from None
        if hello is None or not isinstance(hello.get("pid"), int):
            raise NoChild("it ended before it began")
        return int(hello["pid"])

    def _kill(self, pid: int) -> None:
        with contextlib.suppress(OSError):
            self._control.send(FRAME.pack(KILL, pid, 0))

    def _retire(self, child: Child, runs: int) -> None:
        if child in self._idle and child.runs == runs:
            self._idle.remove(child)
            child.close()

    def _hear(self) -> None:
        """Take from the nursery who ended."""
        try:
            heard = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:
            self._loop.remove_reader(self._control)
            self._lost()
            return
        self._heard += heard
        while len(self._heard) >= FRAME.size:
            kind, pid, code = FRAME.unpack(self._heard[: FRAME.size])
            self._heard = self._heard[FRAME.size :]
            child = self._known.pop(pid, None) if kind == ENDED else None
            if child is not None and not child.code.done():
                child.code.set_result(code)


def _how(code: int) -> str:
    if code >= 0:
        return f"ended by itself with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if -code == signal.SIGKILL:
        return f"was ended by {name}: out of memory, perhaps"
    return f"was ended by {name}"
