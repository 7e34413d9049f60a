"""Which targets are kept, and which are let go of."""

import threading
import uuid
from dataclasses import replace

import pytest

from apps.runs.store import Lease, Written
from apps.worker import targets as targets_module
from apps.worker.execution import Prepared
from apps.worker.targets import GONE, UNUSABLE, Refused, Targets
from chrono.rules.retry import RetryPolicy
from tests.support.seed import make_job, make_ready
from tests.worker.support import running, settled


def written(payload, *, target="{}"):
    return Written(target=target, payload=payload, retry_policy="{}", once=False)


def found(*numbers):
    return {(uuid.UUID(int=n), 1): written(str(n)) for n in numbers}


def learn(targets, found):
    targets.learn(targets.read(found))


def lease(number):
    return Lease(
        run_id=uuid.uuid4(),
        part=0,
        job_id=uuid.UUID(int=number),
        revision=1,
        tenant=1,
        attempt=1,
        fence=1,
        token=uuid.uuid4(),
        job_deleted=False,
    )


def prepare(given):
    return Prepared(
        call=Refused("x"), policy=RetryPolicy(), payload=given.payload, weight=10
    )


def kept(targets):
    return [n for n in range(10) if not targets.missing([lease(n)])]


def test_each_missing_revision_is_asked_for_once():
    targets = Targets(prepare)
    learn(targets, found(1))
    wanted = targets.missing([lease(1), lease(2), lease(2), lease(3)])
    assert wanted == [(uuid.UUID(int=2), 1), (uuid.UUID(int=3), 1)]
    assert targets.of(lease(1)).payload == 1
    assert targets.of(lease(2)) is GONE


def test_what_was_used_longest_ago_is_let_go_by_number():
    targets = Targets(prepare, most=2)
    learn(targets, found(1, 2, 3))
    targets.of(lease(1))
    assert kept(targets) == [1, 2, 3]
    targets.forget()
    assert kept(targets) == [1, 3]


def test_and_by_weight():
    targets = Targets(prepare, heaviest=25)
    for number in (1, 2, 3, 4):
        learn(targets, found(number))
        targets.forget()
    assert kept(targets) == [3, 4]


def test_a_target_that_cannot_be_made_ready_stands_for_itself():
    def broken(given):
        raise RuntimeError

    targets = Targets(broken)
    learn(targets, found(1))
    assert targets.of(lease(1)) is UNUSABLE


def test_targets_that_are_written_alike_are_made_ready_once():
    made = []

    def counting(given):
        made.append(given.payload)
        return prepare(given)

    targets = Targets(counting)
    alike = {(uuid.UUID(int=n), 1): written('{"a": 1}') for n in (1, 2)}
    learn(targets, alike)
    learn(targets, {(uuid.UUID(int=3), 1): written('{"a": 2}')})
    learn(targets, {(uuid.UUID(int=4), 1): written('{"a": 1}')})
    assert made == [{"a": 1}, {"a": 2}]
    assert [targets.of(lease(n)).payload["a"] for n in (1, 2, 3, 4)] == [1, 1, 2, 1]


def test_heavy_targets_and_those_beyond_the_bound_are_made_ready_each():
    made = []

    def heavy(given):
        made.append(given.job_id.int)
        return replace(prepare(given), weight=5_000 if given.payload == 0 else 1)

    targets = Targets(heavy)
    for number in (1, 2):
        learn(targets, {(uuid.UUID(int=number), 1): written("0")})
    assert made == [1, 2]
    made.clear()
    learn(targets, found(*range(1, 1_002)))
    learn(targets, {(uuid.UUID(int=5_000), 1): written("1")})
    assert made == [*range(1, 1_002), 5_000]


@pytest.mark.parametrize("text", ["9" * 5_000, '"' + "x" * 4_096 + '"'])
def test_what_is_written_at_length_is_not_kept_to_be_shared(text):
    made = []

    def light(given):
        made.append(given.job_id.int)
        return prepare(given)

    targets = Targets(light)
    learn(targets, {(uuid.UUID(int=n), 1): written(text) for n in (1, 2)})
    learn(targets, {(uuid.UUID(int=3), 1): written(text)})
    assert made == [1, 2, 3]


def test_what_was_let_go_of_since_it_was_asked_for_is_read_again():
    targets = Targets(prepare)
    learn(targets, found(0))
    again = targets.read({(uuid.UUID(int=1), 1): written("0")})
    learn(targets, found(*range(2, 1_003)))
    targets.learn(again)
    assert targets.of(lease(1)).payload == 0


@pytest.mark.parametrize("text", ["9" * 5_000, "[" * 100_000 + "]" * 100_000])
def test_a_target_that_python_cannot_read_is_of_no_kind(text):
    read = targets_module.read((uuid.UUID(int=1), 1), written(text))
    assert (read.target, read.payload) == ({}, None)


def test_targets_are_read_beside_the_loop_that_executes(dsn, connect, monkeypatch):
    threads, read = [], targets_module.read

    def watched(key, written):
        threads.append(threading.current_thread())
        return read(key, written)

    monkeypatch.setattr(targets_module, "read", watched)
    conn = connect()
    task = {"kind": "task", "name": "nothing"}
    for payload in ("x" * 10_000, "x" * 10_000, "alike", "alike"):
        make_ready(conn, make_job(conn, target=task, payload=payload))
    with running(dsn, {"nothing": lambda payload: None}) as worker:
        settled(conn, 4)
        assert len(threads) == 3
        assert worker.thread not in threads


@pytest.mark.parametrize(
    ("target", "knows", "may"),
    [
        ('{"kind": "http"}', False, False),
        ('{"kind": "task"}', False, True),
        ('{"kind": "task"}', True, False),
    ],
)
def test_only_a_task_that_is_unknown_or_takes_the_context_may_take_it(
    target, knows, may
):
    targets = Targets(prepare)
    new = written("1", target=target)
    if knows:
        learn(targets, {(uuid.UUID(int=1), 1): new})
    assert targets.may_take_context(new) is may
    taking = Targets(lambda given: replace(prepare(given), takes_context=True))
    learn(taking, {(uuid.UUID(int=1), 1): new})
    assert taking.may_take_context(new)
