"""How tasks are registered, and what the system checks say of them."""

import functools

import pytest
from django.core.checks import run_checks
from django.test import override_settings

import chrono
from apps.worker.checks import check_settings, check_tasks
from chrono import tasks
from chrono.tasks import Context, NotATask, Registry


def one(payload): ...
def two(payload, ctx): ...
def context_by_default(payload, context=None): ...
def optional(payload, retries=3): ...
def anything(*args, **kwargs): ...
async def coroutine(payload, ctx): ...
def none(): ...
def three(payload, ctx, more): ...
def keyword(payload, *, ctx): ...


@pytest.mark.parametrize(
    ("function", "wants_context", "is_async"),
    [
        (one, False, False),
        (two, True, False),
        (context_by_default, True, False),
        (optional, False, False),
        (anything, False, False),
        (coroutine, True, True),
        (functools.partial(three, more=1), True, False),
    ],
)
def test_a_task_takes_the_payload_and_perhaps_the_context(
    function, wants_context, is_async
):
    registry = Registry()
    registry.add("x", function)
    task = registry.get("x")
    assert (task.wants_context, task.is_async) == (wants_context, is_async)


@pytest.mark.parametrize("function", [none, three, keyword])
def test_other_functions_are_refused_when_they_are_registered(function):
    with pytest.raises(NotATask, match="takes one argument"):
        Registry().add("x", function)


@pytest.mark.parametrize(
    ("function", "options", "isolation", "memory"),
    [
        (one, {}, "thread", None),
        (coroutine, {}, "loop", None),
        (one, {"isolation": "thread"}, "thread", None),
        (coroutine, {"isolation": "loop"}, "loop", None),
        (one, {"isolation": "process"}, "process", None),
        (coroutine, {"isolation": "process"}, "process", None),
        (one, {"isolation": "process", "memory": "512MiB"}, "process", 512 << 20),
        (one, {"isolation": "process", "memory": "2GiB"}, "process", 2 << 30),
    ],
)
def test_a_task_is_executed_where_it_says(function, options, isolation, memory):
    registry = Registry()
    registry.add("x", function, **options)
    task = registry.get("x")
    assert (task.isolation, task.memory) == (isolation, memory)
    assert registry.has_isolated() is (isolation == "process")


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        (one, {"isolation": "loop"}, "isolation is process or left out"),
        (coroutine, {"isolation": "thread"}, "isolation is process or left out"),
        (one, {"isolation": "container"}, "isolation is process or left out"),
        (one, {"memory": "1GiB"}, 'only be bounded with isolation="process"'),
        (one, {"isolation": "process", "memory": "1G"}, "as 512MiB or 2GiB"),
        (one, {"isolation": "process", "memory": "1MiB"}, "16MiB or more"),
    ],
)
def test_an_isolation_that_a_task_cannot_have_is_refused(function, options, said):
    with pytest.raises(NotATask, match=said):
        Registry().add("x", function, **options)


def test_a_context_without_a_worker_keeps_nothing_and_can_be_called():
    ctx = Context(
        run_id="r", key="r", job_id="j", attempt=1, scheduled_for=None, fence=1
    )
    ctx.checkpoint(object())
    ctx.progress(0.5, "half")
    ctx.cancelled = True
    with pytest.raises(chrono.RunCancelled):
        ctx.checkpoint(1)
    with pytest.raises(chrono.RunCancelled):
        ctx.progress()


def test_the_first_of_two_stands_and_the_same_one_again_is_no_duplicate():
    registry = Registry()
    registry.add("x", one)
    registry.add("x", one)
    assert registry.duplicates == []
    registry.add("x", two)
    [duplicate] = registry.duplicates
    assert (duplicate.first.function, duplicate.second.function) == (one, two)
    assert registry.get("x").function is one
    assert registry.get("y") is None
    assert registry.names() == ["x"]


def test_the_decorator_gives_the_function_back(monkeypatch):
    monkeypatch.setattr(tasks, "registry", Registry())
    assert chrono.task(name="x")(one) is one
    assert tasks.registry.get("x").function is one


def test_modules_named_in_the_settings_are_imported(monkeypatch):
    with override_settings(CHRONO_TASK_MODULES=["tests.worker.probe"]):
        registry = tasks.discover()
    assert "probe" in registry.names()


def test_a_duplicate_name_is_a_system_check_error(monkeypatch):
    registry = Registry()
    registry.add("billing", one)
    registry.add("billing", two)
    monkeypatch.setattr(tasks, "registry", registry)
    [error] = check_tasks()
    assert error.id == "chrono.worker.E001"
    assert "billing" in error.msg
    assert "test_registry.one" in error.msg
    assert "test_registry.two" in error.msg
    assert error in run_checks()


def test_settings_that_workers_cannot_use_are_errors():
    assert check_settings() == []
    with override_settings(CHRONO_EGRESS_ALLOW=["home"], CHRONO_WEBHOOK_SECRET="x"):
        assert [error.id for error in check_settings()] == [
            "chrono.worker.E002",
            "chrono.worker.E003",
        ]


def test_a_context_is_what_it_says():
    assert Context.__dataclass_fields__.keys() == {
        "run_id",
        "key",
        "job_id",
        "attempt",
        "scheduled_for",
        "fence",
        "cancelled",
        "missed",
        "last_checkpoint",
        "notes",
        "connection",
        "onces",
    }
