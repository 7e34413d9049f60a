"""Which targets are kept, and which are let go of."""

import uuid

from apps.runs.store import Lease, Target
from apps.worker.execution import Prepared
from apps.worker.targets import GONE, UNUSABLE, Refused, Targets
from chrono.rules.retry import RetryPolicy


def target(number):
    return Target(
        job_id=uuid.UUID(int=number),
        revision=1,
        target={},
        payload=number,
        retry_policy={},
    )


def lease(number):
    return Lease(
        run_id=uuid.uuid4(),
        part=0,
        job_id=uuid.UUID(int=number),
        revision=1,
        tenant=1,
        attempt=1,
        fence=1,
        due_at=0,
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
    targets.learn([target(1)])
    wanted = targets.missing([lease(1), lease(2), lease(2), lease(3)])
    assert wanted == [(uuid.UUID(int=2), 1), (uuid.UUID(int=3), 1)]
    assert targets.of(lease(1)).payload == 1
    assert targets.of(lease(2)) is GONE


def test_what_was_used_longest_ago_is_let_go_by_number():
    targets = Targets(prepare, most=2)
    targets.learn([target(1), target(2), target(3)])
    targets.of(lease(1))
    assert kept(targets) == [1, 2, 3]
    targets.forget()
    assert kept(targets) == [1, 3]


def test_and_by_weight():
    targets = Targets(prepare, heaviest=25)
    for number in (1, 2, 3, 4):
        targets.learn([target(number)])
        targets.forget()
    assert kept(targets) == [3, 4]


def test_a_target_that_cannot_be_made_ready_stands_for_itself():
    def broken(given):
        raise RuntimeError

    targets = Targets(broken)
    targets.learn([target(1)])
    assert targets.of(lease(1)) is UNUSABLE
