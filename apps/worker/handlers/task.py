"""Targets that are Python functions: on the loop, in threads, or in processes."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from apps.runs.store import Target
from apps.worker.children import Children
from apps.worker.execution import PLAIN, Call, Execution, HandBack, Outcome, Success
from apps.worker.handlers.function import Arguments, call_in_thread, ending_of
from apps.worker.handlers.process import ProcessCall
from apps.worker.handlers.transaction import TransactionCall
from apps.worker.targets import Refused
from apps.worker.threads import Threads
from chrono.rules.durations import parse_duration
from chrono.rules.errors import BadValue
from chrono.rules.instants import MINUTE, Millis
from chrono.rules.states import Reason
from chrono.tasks import Registry, Task

log = logging.getLogger("chrono.worker")

NO_HANDLER_WAIT = MINUTE


class NoHandler:
    """A task this worker does not know: another one may, or this one after a deploy."""

    async def run(self, execution: Execution) -> Outcome:
        """Hand the run back for a minute."""
        return HandBack(wait=NO_HANDLER_WAIT, reason=Reason.NO_HANDLER)


class AsyncCall:
    """A coroutine function."""

    def __init__(self, task: Task, arguments: Arguments) -> None:
        self._function = task.function
        self._arguments = arguments

    async def run(self, execution: Execution) -> Outcome:
        """Await the function on this loop."""
        try:
            result = await self._function(*self._arguments.of(execution))
            return PLAIN if result is None else Success(result=result)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  (sys.exit() in a task as well)
            return ending_of(error, execution)


class ThreadCall:
    """A plain function."""

    def __init__(self, task: Task, arguments: Arguments, threads: Threads) -> None:
        self._function = task.function
        self._arguments = arguments
        self._threads = threads

    async def run(self, execution: Execution) -> Outcome:
        """Call the function in a thread and wait for it."""
        return await call_in_thread(
            self._call, execution, self._arguments, self._threads
        )

    def _call(self, execution: Execution, arguments: tuple[Any, ...]) -> Outcome:
        try:
            return Success(result=self._function(*arguments))
        except BaseException as error:  # noqa: BLE001  (sys.exit() in a task as well)
            return ending_of(error, execution)


def prepare_task(
    target: Target,
    *,
    registry: Registry,
    threads: Threads,
    children: Children | None,
) -> Call:
    """Return what calls the function that a target names."""
    name = target.target.get("name")
    if not isinstance(name, str):
        return Refused("The target names no task.")
    task = registry.get(name)
    if task is None:
        log.warning("no task is named %s here; its runs are handed back", name)
        return NoHandler()
    if task.isolation == "process":
        if children is None:
            return Refused("This worker has no processes for tasks.")
        return ProcessCall(task, target.payload, children)
    arguments = Arguments(task, target)
    if task.transactional:
        return TransactionCall(task, arguments, threads)
    if task.is_async:
        return AsyncCall(task, arguments)
    return ThreadCall(task, arguments, threads)


def limits_of(fields: Mapping[str, Any]) -> tuple[Millis | None, Millis | None]:
    """Return a target's timeout and progress deadline; raises BadValue."""
    return _duration(fields, "timeout"), _duration(fields, "progress_deadline")


def _duration(fields: Mapping[str, Any], name: str) -> Millis | None:
    value = fields.get(name)
    if value is None:
        return None
    field = f"target.{name}"
    if not isinstance(value, str):
        raise BadValue(f"{name} is a duration as text: 30s.", field=field)
    duration = parse_duration(value, field=field)
    if duration <= 0:
        raise BadValue(f"{name} is longer than nothing.", field=field)
    return duration
