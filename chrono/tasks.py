"""Python functions as job targets: ``@chrono.task(name="billing.close_day")``.

A job names its function by this name; nothing that a job says is ever imported. The
registry is filled by importing each installed app's ``tasks.py`` and the modules of
``CHRONO_TASK_MODULES``, and by nothing else.
"""

import dataclasses
import importlib
import importlib.util
import inspect
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class NotATask(TypeError):
    """A task takes one argument, the payload, or two: the payload and the context."""


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
    cancelled: bool = False
    """Becomes true when the result is no longer wanted: look now and then."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One registered function."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    wants_context: bool


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

    def add(self, name: str, function: Callable[..., Any]) -> None:
        """Register a function; a second one under the same name becomes a duplicate.

        The same function again (a module imported anew) replaces the first. Raises
        :class:`NotATask` for a function that takes neither one nor two arguments.
        """
        task = Task(
            name=name,
            function=function,
            is_async=inspect.iscoroutinefunction(function),
            wants_context=_positional(function) == 2,
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


registry = Registry()


def task(*, name: str) -> Callable[[F], F]:
    """Register a function as the target ``{"kind": "task", "name": name}``.

    It is called with the job's payload, and with a :class:`Context` if it takes a
    second argument. What it returns is the run's result and must be JSON. Coroutine
    functions run on the worker's event loop, others in its threads.
    """

    def register(function: F) -> F:
        registry.add(name, function)
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
