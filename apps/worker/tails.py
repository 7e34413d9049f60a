"""The last of what a handler logged, kept with its attempt.

A handler of the root logger gives each record to the execution it was made in, which a
context variable names: in a coroutine, in what it starts, and in its thread. Chrono's
own records stay out. What is kept has a bound, however much is logged.
"""

import logging
import threading
from collections import deque
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Protocol, override

from apps.runs.store import Settlement
from apps.worker.storable import storable_log
from chrono.rules.states import RunState
from chrono.tasks import TASK_LOGGER

FAILED_LIMIT = 8_192
"""Bytes kept of what an attempt logged that did not succeed."""
SUCCESS_LIMIT = 1_024
"""Bytes kept of what a successful one logged: nearly all runs are."""
_OWN = "chrono."

_formatter = logging.Formatter()


class Tail:
    """The last of what one execution logged; may be written to from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: deque[str] = deque()
        self._size = 0

    def write(self, line: str) -> None:
        """Add a line, or several; of a very long one its end."""
        line = line[-FAILED_LIMIT:]
        with self._lock:
            self._lines.append(line)
            self._size += len(line) + 1
            while self._size - len(self._lines[0]) - 1 > FAILED_LIMIT:
                self._size -= len(self._lines.popleft()) + 1

    def text(self) -> str:
        """Return what is kept, its oldest line first."""
        with self._lock:
            return "\n".join(self._lines)


class Logs(Protocol):
    """Whatever has a tail: an execution."""

    tail: Tail | None


current: ContextVar[Logs | None] = ContextVar("current", default=None)
"""The execution that this coroutine or thread is part of."""


class TailHandler(logging.Handler):
    """Gives records to the tail of the execution that they were made in."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        execution = current.get()
        if execution is None:
            return
        if record.name.startswith(_OWN) and record.name != TASK_LOGGER:
            return
        if execution.tail is None:
            execution.tail = Tail()
        execution.tail.write(_line(record))


def install() -> TailHandler:
    """Have the root logger's records kept; return the handler, to be taken off."""
    handler = TailHandler()
    logging.getLogger().addHandler(handler)
    return handler


def with_log(settlement: Settlement, tail: Tail) -> Settlement:
    """Return a settlement with what was logged, as much as is kept of it."""
    succeeded = settlement.state == RunState.SUCCESS
    most = SUCCESS_LIMIT if succeeded else FAILED_LIMIT
    return settlement._replace(log=storable_log(tail.text(), most=most))


def _line(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, tz=UTC)
    at = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    try:
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{_formatter.formatException(record.exc_info)}"
    except Exception as error:  # noqa: BLE001  (its arguments are somebody else's code)
        text = f"[a record that cannot be shown: {type(error).__name__}]"
    name = "" if record.name == TASK_LOGGER else f" {record.name}:"
    return f"{at} {record.levelname}{name} {text}"
