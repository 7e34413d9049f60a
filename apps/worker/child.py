"""A process that executes isolated tasks, one after the other, for a worker.

The handler has the main thread; another one hears the worker. What the handler prints
goes to the worker by a pipe that is emptied at a bounded rate: who prints much waits.
"""

import asyncio
import contextlib
import faulthandler
import io
import os
import queue
import resource
import select
import socket
import sys
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db import close_old_connections

from apps.worker import frames
from apps.worker.asks import Asker
from apps.worker.handlers.function import failure_of
from apps.worker.notebook import checkpoint_text, progress_of
from apps.worker.storable import storable_error, storable_result
from chrono.tasks import Context, Missed, OnceBusy, Registry, Task

TICK_S = 0.25
"""How often what a handler tells is sent on."""
OWN_THREADS = 2
CRASH = "process_crash"


def serve_child(registry: Registry, channel: int, output: int) -> None:
    """Execute what the worker sends on ``channel`` until it closes it."""
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What is in a buffer when a process crashes is lost.
            stream.reconfigure(line_buffering=True)
    # The line of code that a crash happened in is worth more than its signal.
    faulthandler.enable()
    _volunteer()
    _Child(registry, socket.socket(fileno=channel)).run()


class _Child:
    def __init__(self, registry: Registry, channel: socket.socket) -> None:
        self._registry = registry
        self._channel = channel
        self._sending = threading.Lock()
        self._orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._notes: _Notes | None = None
        self._asker: Asker | None = None
        self._context: Context | None = None
        self._cancel: Callable[[], None] | None = None

    def run(self) -> None:
        self._send({"is": "hello", "pid": os.getpid()})
        threading.Thread(target=self._hear, name="worker", daemon=True).start()
        while True:
            order = self._orders.get()
            answer = self._execute(order)
            notes, self._notes = self._notes, None
            if notes is not None:
                notes.flush()
            if self._asker is not None:
                self._asker.close()
            self._context = self._cancel = None
            self._send(answer)

    def _hear(self) -> None:
        """Take what the worker sends; without the worker there is nothing to do."""
        try:
            while True:
                busy = self._notes is not None
                readable, _, _ = select.select(
                    [self._channel], [], [], TICK_S if busy else None
                )
                notes = self._notes
                if notes is not None:
                    notes.tick()
                if readable and not self._take(frames.receive(self._channel)):
                    break
        finally:
            os._exit(0)

    def _take(self, message: dict[str, Any] | None) -> bool:
        if message is None:
            return False
        if message["do"] == "run":
            # Made here, so that a cancel right behind it finds it.
            self._notes = _Notes(self._send)
            self._asker = Asker(self._send)
            self._context = context_of(message["context"], self._notes, self._asker)
            self._orders.put(message)
        elif message["do"] == "answer":
            if self._asker is not None:
                self._asker.hear(message)
        elif message["do"] == "cancel":
            if self._context is not None:
                self._context.cancelled = True
            if self._cancel is not None:
                self._cancel()
        return True

    def _execute(self, order: dict[str, Any]) -> dict[str, Any]:
        task = self._registry.get(order["task"])
        if task is None:
            return _failed("bad_target", "The task is not known to this process.")
        close_old_connections()
        unbound = _bind_memory(order["memory"])
        try:
            result = self._call(task, order["payload"])
        except MemoryError as error:
            unbound()
            words = failure_of(error).message
            most = (order["memory"] or 0) >> 20
            why = f"more than {most} MiB" if most else "the machine has no more"
            return _failed(CRASH, f"It ran out of memory: {why}.\n{words}")
        except SystemExit as error:
            unbound()
            return _failed(CRASH, f"It ended its process: sys.exit({error.code!r}).")
        except BaseException as error:  # noqa: BLE001  (whatever a task raises)
            unbound()
            failure = failure_of(error)
            answer = _failed(failure.kind, failure.message, reusable=_is_sound())
            return answer | {"busy": isinstance(error, OnceBusy)}
        unbound()
        close_old_connections()
        return {
            "is": "done",
            "result": storable_result(result),
            "reusable": _is_sound(),
        }

    def _call(self, task: Task, payload: Any) -> Any:
        arguments = (payload, self._context) if task.wants_context else (payload,)
        if not task.is_async:
            return task.function(*arguments)
        with asyncio.Runner() as runner:
            return runner.run(self._await(task, arguments))

    async def _await(self, task: Task, arguments: tuple[Any, ...]) -> Any:
        loop, own = asyncio.get_running_loop(), asyncio.current_task()

        def cancel() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(own.cancel if own else _nothing)

        self._cancel = cancel
        if self._context is not None and self._context.cancelled:
            cancel()
        return await task.function(*arguments)

    def _send(self, message: dict[str, Any]) -> None:
        with self._sending:
            self._channel.sendall(frames.pack(message))


class _Notes:
    """What the handler tells: the first of each kind is sent at once, then by ticks."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._pending: dict[str, Any] = {}
        self._sent: set[str] = set()

    def checkpoint(self, value: Any) -> None:
        self._tell("checkpoint", {"checkpoint": checkpoint_text(value)})

    def progress(self, share: float | None, text: str) -> None:
        share, text = progress_of(share, text)
        self._tell("progress", {"share": share, "text": text})

    def tick(self) -> None:
        """Send what waits; what is told next is sent at once."""
        self.flush()
        self._sent.clear()

    def flush(self) -> None:
        """Send what waits."""
        with self._lock:
            pending, self._pending = self._pending, {}
            if pending:
                self._send({"is": "note", **pending})

    def _tell(self, kind: str, note: dict[str, Any]) -> None:
        with self._lock:
            self._pending |= note
        if kind not in self._sent:
            self._sent.add(kind)
            self.flush()


def context_of(fields: dict[str, Any], notes: _Notes, asker: Asker) -> Context:
    """Return the context that a worker described."""
    missed = fields.pop("missed")
    return Context(
        **fields
        | {
            "scheduled_for": datetime.fromisoformat(fields["scheduled_for"]),
            "notes": notes,
            "onces": asker,
            "missed": missed
            and Missed(
                first=datetime.fromisoformat(missed["first"]),
                last=datetime.fromisoformat(missed["last"]),
                count=missed["count"],
            ),
        }
    )


def describe(context: Context) -> dict[str, Any]:
    """Return a context as JSON, for :func:`context_of`."""
    missed = context.missed
    return {
        "run_id": context.run_id,
        "key": context.key,
        "job_id": context.job_id,
        "attempt": context.attempt,
        "scheduled_for": context.scheduled_for.isoformat(),
        "fence": context.fence,
        "last_checkpoint": context.last_checkpoint,
        "cancelled": context.cancelled,
        "missed": missed
        and {
            "first": missed.first.isoformat(),
            "last": missed.last.isoformat(),
            "count": missed.count,
        },
    }


def _failed(kind: str, message: str, *, reusable: bool = False) -> dict[str, Any]:
    return {
        "is": "done",
        "kind": kind,
        "message": storable_error(message),
        "reusable": reusable,
    }


def _is_sound() -> bool:
    """Return whether the handler has left no thread behind."""
    return threading.active_count() <= OWN_THREADS


def _bind_memory(most: int | None) -> Callable[[], None]:
    """Bound what this process may take besides what it has; return what unbinds it."""
    taken = _address_space() if most is not None else None
    if most is None or taken is None:
        return _nothing
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = taken + most
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space() -> int | None:
    """Return how many bytes this process has mapped; None where nobody tells."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return None


def _volunteer() -> None:
    """Have the kernel take this process first when the machine is out of memory."""
    with (
        contextlib.suppress(OSError),
        open("/proc/self/oom_score_adj", "w", encoding="ascii") as file,
    ):
        file.write("1000")


def _nothing() -> None:
    """Do nothing."""
