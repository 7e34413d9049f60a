"""Python functions as job targets: ``@chrono.task(name="billing.close_day")``.

A job names its function by this name; nothing that a job says is ever imported. The
registry is filled by importing each installed app's ``tasks.py`` and the modules of
``CHRONO_TASK_MODULES``, and by nothing else.
"""

import asyncio
import dataclasses
import importlib
import importlib.util
import inspect
import logging
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


type Per = Literal["run", "job"]
"""Whose a key of :meth:`Context.once` is: one run's, or shared by the runs of a job."""
LONGEST_ONCE = 200

type Isolation = Literal["loop", "thread", "process"]
"""Where a task is executed: on the worker's event loop, in one of its threads, or in a
process of its own, which can be killed and whose end harms nobody else."""


LEAST_MEMORY = 16 * 1024 * 1024
_MEMORY = re.compile(r"([0-9]{1,6})(MiB|GiB)")
_MEMORY_UNITS = {"MiB": 1024**2, "GiB": 1024**3}


TASK_LOGGER = "chrono.task"
"""What :meth:`Context.log` logs to."""
_log = logging.getLogger(TASK_LOGGER)


class NotATask(TypeError):
    """A task takes one argument, the payload, or two: the payload and the context."""


class NotStorable(ValueError):
    """What was given to :meth:`Context.checkpoint` or ``progress`` cannot be kept."""


class RunCancelled(BaseException):
    """The run was called off: clean up and return.

    Raised by :meth:`Context.checkpoint` and :meth:`Context.progress`, after what they
    were given is kept. No ordinary exception, so that ``except Exception`` in a task
    does not swallow it.
    """


class OnceBusy(Exception):
    """Another execution that lives is at what was to be done once.

    Where a task lets it pass, its run comes again in a while and no attempt is spent.
    """


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What was done before under a key."""

    result: Any


class Once(Protocol):
    """Keeps what a task does once; may be called from any thread."""

    def take(self, name: str, *, per: Per, ttl: str) -> Done | None:
        """Take a key, or return what was done under it.

        Raises :class:`OnceBusy` while somebody alive is at it, :class:`RunCancelled`
        where this execution has lost its lease, ValueError for a wrong ``ttl``.
        """

    def finish(self, name: str, result: Any, *, per: Per, ttl: str) -> Any:
        """Keep what came of it; return that as it is kept.

        Raises :class:`RunCancelled` where somebody took the key over.
        """

    def release(self, name: str, *, per: Per) -> None:
        """Give a key back under which nothing was done."""


class Notes(Protocol):
    """Takes what a task tells of itself; may be called from any thread."""

    def checkpoint(self, value: Any) -> None:
        """Keep a value for the next attempt. Raises :class:`NotStorable`."""

    def progress(self, share: float | None, text: str) -> None:
        """Keep how far the run is. Raises :class:`NotStorable`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """The missed occurrences that one run stands for, after an outage."""

    first: datetime
    """The nominal instant of the first one, in UTC."""
    last: datetime
    """That of the run itself."""
    count: int
    """How many they are, the run's own included; of very many, at least so many."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Context:
    """What a task may know of the execution it is part of."""

    run_id: str
    """The same in every attempt."""
    key: str
    """The idempotency key: hand it to whatever the task calls."""
    job_id: str
    attempt: int
    """From 1."""
    scheduled_for: datetime
    """The nominal instant, in UTC."""
    fence: int
    """Rises with each leadership; a store that keeps the highest can refuse older."""
    missed: Missed | None = None
    """What else this run stands for; None where it is for its own instant alone."""
    last_checkpoint: Any = None
    """What an earlier attempt gave to :meth:`checkpoint` last; None for nothing."""
    connection: Any = dataclasses.field(default=None, repr=False, compare=False)
    """In a transactional task the psycopg session of its transaction; None elsewhere.

    Django's default connection is the same session. Neither commit nor roll back here.
    """
    cancelled: bool = False
    """Becomes true when the result is no longer wanted: look now and then."""
    notes: Notes | None = dataclasses.field(default=None, repr=False, compare=False)
    """The worker's part. A context made without it, as in a test, keeps nothing."""
    onces: Once | None = dataclasses.field(default=None, repr=False, compare=False)
    """The worker's part of :meth:`once`; without it every call is a first one."""

    def once(
        self,
        key: str,
        function: Callable[..., Any],
        *arguments: Any,
        per: Per = "run",
        ttl: str = "7d",
    ) -> Any:
        """Call ``function(*arguments)`` unless it succeeded under this key before.

        Returns what it returned, now or then, as JSON up to 64 KiB. A function that
        raises is called again by whoever comes next. Of a coroutine function the call
        returns a coroutine, to be awaited.

        The key is the run's own, through all its attempts, or with ``per="job"`` shared
        by all runs of the job; it is kept for ``ttl`` after the success. Raises
        :class:`OnceBusy` while another execution that lives is at it: let it pass, and
        the run comes again. A worker that dies between the effect and its return leaves
        it open whether there was one: hand a key of its own on to the receiver.

        In a transactional task it is part of the transaction, which must not have had
        effects outside it.
        """
        _check_once(key, per)
        if inspect.iscoroutinefunction(function):
            return self._once_async(key, function, arguments, per, ttl)
        if _is_on_a_loop():
            raise TypeError(
                "In a coroutine, once() takes a coroutine function, and is awaited: a "
                "plain function would hold up the worker's event loop."
            )
        onces = self.onces
        if onces is None:
            return function(*arguments)
        done = onces.take(key, per=per, ttl=ttl)
        if done is not None:
            return done.result
        try:
            result = function(*arguments)
            if inspect.isawaitable(result):
                raise TypeError("once() got a function that returns a coroutine.")
        except BaseException:
            onces.release(key, per=per)
            raise
        return onces.finish(key, result, per=per, ttl=ttl)

    async def _once_async(
        self,
        key: str,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        per: Per,
        ttl: str,
    ) -> Any:
        onces = self.onces
        if onces is None:
            return await function(*arguments)
        done = await asyncio.to_thread(onces.take, key, per=per, ttl=ttl)
        if done is not None:
            return done.result
        try:
            result = await function(*arguments)
        except BaseException:
            await asyncio.shield(asyncio.to_thread(onces.release, key, per=per))
            raise
        return await asyncio.shield(
            asyncio.to_thread(onces.finish, key, result, per=per, ttl=ttl)
        )

    def checkpoint(self, value: Any) -> None:
        """Keep a value for the next attempt, where it is :attr:`last_checkpoint`.

        Any JSON up to 64 KiB; of several within a second the last one is stored. The
        lease guards it: what a worker writes that lost the run counts for nothing.
        Raises :class:`NotStorable` for other values, and :class:`RunCancelled`, with
        the value kept, once the run is called off.
        """
        if self.notes is not None:
            self.notes.checkpoint(value)
        if self.cancelled:
            raise RunCancelled

    def progress(self, share: float | None = None, text: str = "") -> None:
        """Tell people how far the run is: a share from 0 to 1, a text, or both.

        Counts as a sign of life for the target's ``progress_deadline``, as a checkpoint
        does. A text longer than 200 characters is cut. Raises as :meth:`checkpoint`.
        """
        if self.notes is not None:
            self.notes.progress(share, text)
        if self.cancelled:
            raise RunCancelled

    def log(self, text: str) -> None:
        """Log a line, at INFO, as ``logging`` does in a task, too.

        It goes where the worker's own lines go. What an attempt logged last is kept
        with it: 8 KiB where it failed, 1 KiB where it succeeded.
        """
        _log.info("%s", text)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One registered function."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    wants_context: bool
    isolation: Isolation
    memory: int | None = None
    """Bytes that a run in a process may take besides those it begins with."""
    transactional: bool = False
    """Whether it is called inside the transaction that settles its run."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """Two functions under one name; the first one stands."""

    name: str
    first: Task
    second: Task


class Registry:
    """Tasks by name."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}
        self.duplicates: list[Duplicate] = []

    def add(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        isolation: str | None = None,
        memory: str | None = None,
        transactional: bool = False,
    ) -> None:
        """Register a function; a second one under the same name becomes a duplicate.

        The same function again (a module imported anew) replaces the first. Raises
        :class:`NotATask` for a function that takes neither one nor two arguments, an
        isolation that it cannot have, a memory limit without a process, and for a
        transactional one that is no plain function in a thread.
        """
        is_async = inspect.iscoroutinefunction(function)
        chosen = _isolation(isolation, is_async=is_async)
        if transactional and chosen != "thread":
            raise NotATask(
                f"{function!r}: a transactional task is a plain function without an "
                "isolation: the transaction belongs to one thread of the worker."
            )
        task = Task(
            name=name,
            function=function,
            is_async=is_async,
            wants_context=_positional(function) == 2,
            isolation=chosen,
            memory=_memory(memory, isolation=chosen),
            transactional=transactional,
        )
        first = self._tasks.get(name)
        if first is None or where(first) == where(task):
            self._tasks[name] = task
        else:
            self.duplicates.append(Duplicate(name=name, first=first, second=task))

    def get(self, name: str) -> Task | None:
        """Return the task of this name, or None."""
        return self._tasks.get(name)

    def names(self) -> list[str]:
        """Return all names in order."""
        return sorted(self._tasks)

    def has_isolated(self) -> bool:
        """Return whether a task is to be executed in a process of its own."""
        return any(task.isolation == "process" for task in self._tasks.values())


registry = Registry()


def task(
    *,
    name: str,
    isolation: Isolation | None = None,
    memory: str | None = None,
    transactional: bool = False,
) -> Callable[[F], F]:
    """Register a function as the target ``{"kind": "task", "name": name}``.

    It is called with the job's payload, and with a :class:`Context` if it takes a
    second argument. What it returns is the run's result and must be JSON. Coroutine
    functions run on the worker's event loop, others in its threads, unless
    ``isolation="process"`` asks for a process of their own. There ``memory``, as
    ``512MiB``, bounds what a run may take besides what the process begins with.

    A ``transactional`` one is called inside the transaction that settles its run, on
    Django's default connection: what it writes there happens exactly once.
    """

    def register(function: F) -> F:
        registry.add(
            name,
            function,
            isolation=isolation,
            memory=memory,
            transactional=transactional,
        )
        return function

    return register


def where(task: Task) -> str:
    """Return module and name of the function of a task."""
    function = task.function
    module = getattr(function, "__module__", "?")
    return f"{module}.{getattr(function, '__qualname__', repr(function))}"


def discover() -> Registry:
    """Import every module that may hold tasks, and return the registry.

    Needs Django to be set up. An error in such a module is its author's to see: it is
    raised as it is.
    """
    from django.apps import apps
    from django.conf import settings

    for app in apps.get_app_configs():
        name = f"{app.name}.tasks"
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name)
    for name in settings.CHRONO_TASK_MODULES:
        importlib.import_module(name)
    return registry


def _check_once(key: object, per: object) -> None:
    if not isinstance(key, str) or not 1 <= len(key) <= LONGEST_ONCE:
        raise ValueError(f"A key of once() is text of 1 to {LONGEST_ONCE} characters.")
    if not key.isprintable():
        raise ValueError("A key of once() has no control characters.")
    if per not in ("run", "job"):
        raise ValueError(f"per is run or job, not {per!r}.")


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _isolation(given: str | None, *, is_async: bool) -> Isolation:
    if given == "process":
        return "process"
    own: Isolation = "loop" if is_async else "thread"
    if given not in (None, own):
        raise NotATask(
            f"isolation is process or left out, not {given!r}: coroutine functions run "
            "on the worker's event loop, others in its threads."
        )
    return own


def _memory(given: str | None, *, isolation: Isolation) -> int | None:
    if given is None:
        return None
    if isolation != "process":
        raise NotATask('memory can only be bounded with isolation="process".')
    size = _MEMORY.fullmatch(given)
    bytes_ = int(size[1]) * _MEMORY_UNITS[size[2]] if size else 0
    if bytes_ < LEAST_MEMORY:
        raise NotATask(f"memory is 16MiB or more, as 512MiB or 2GiB, not {given!r}.")
    return bytes_


def _positional(function: Callable[..., Any]) -> int:
    """Return how many arguments to call with: 1 or 2."""
    parameters = inspect.signature(function).parameters.values()
    positional = [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
    ]
    needed = [
        p
        for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if (
        len(needed) > 2
        or not positional
        or any(p.kind is p.KEYWORD_ONLY for p in needed)
    ):
        raise NotATask(f"{function!r}: {inspect.getdoc(NotATask)}")
    named = [p for p in positional if p.kind is not p.VAR_POSITIONAL]
    second_is_context = len(needed) == 2 or (
        len(named) == 2 and named[1].name in ("ctx", "context")
    )
    return 2 if second_is_context else 1
