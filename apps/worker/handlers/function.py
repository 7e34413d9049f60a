"""What every call of a Python function needs: its arguments, and its failures."""

import asyncio
import json
import traceback
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from apps.runs.store import Target
from apps.worker.execution import Execution, HandBack, Outcome
from apps.worker.threads import Threads
from chrono.rules.instants import SECOND, Millis
from chrono.rules.retry import Failure
from chrono.rules.states import Reason
from chrono.tasks import OnceBusy, Task

BUSY_WAIT: Millis = 5 * SECOND
COME_AGAIN = HandBack(wait=BUSY_WAIT, reason=Reason.DUPLICATE)
"""Of an execution that found somebody else at what is done once."""
TRACE_FRAMES = 8


class Arguments:
    """What a function is called with; a payload that can change is made anew."""

    def __init__(self, task: Task, target: Target) -> None:
        self._payload = target.payload
        changes = isinstance(target.payload, dict | list)
        self._text = target.text if changes else None
        self._wants_context = task.wants_context

    def of(self, execution: Execution) -> tuple[Any, ...]:
        """Return the arguments for one execution."""
        payload = self._payload if self._text is None else json.loads(self._text)
        if self._wants_context:
            return (payload, execution.open_context())
        return (payload,)


async def call_in_thread(
    call: Callable[[Execution, tuple[Any, ...]], Outcome],
    execution: Execution,
    arguments: Arguments,
    threads: Threads,
) -> Outcome:
    """Have ``call`` carry out an execution in one of the threads; return its outcome.

    A thread cannot be stopped. Until it returns it is waited for, since another attempt
    would run beside it.
    """
    given = arguments.of(execution)
    execution.stop = _nothing
    loop = asyncio.get_running_loop()
    # With its context, by which what it logs is known to be its own.
    run = copy_context().run
    return await loop.run_in_executor(threads, run, call, execution, given)


def ending_of(error: BaseException, execution: Execution) -> Outcome:
    """Return what becomes of an execution whose function raised.

    While somebody else is at what is done once, it comes again; unless it may not.
    """
    if isinstance(error, OnceBusy) and not execution.prepared.once:
        return COME_AGAIN
    return failure_of(error)


def failure_of(error: BaseException) -> Failure:
    """Return an exception as a failure, with the last frames of the function."""
    # The first frame is this module's own.
    frames = traceback.extract_tb(error.__traceback__)[1:][-TRACE_FRAMES:]
    trace = "".join(traceback.format_list(frames))
    return Failure("exception", f"{_words(error)}\n{trace}".rstrip())


def _nothing() -> None:
    """Do nothing: the context says that it is called off."""


def _words(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  (its __str__ is somebody else's code too)
        return type(error).__name__
