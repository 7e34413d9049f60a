"""The verdict about acknowledgements is red for every fault that is planted."""

import dataclasses
from collections.abc import Collection
from typing import Any

import pytest

from tests.rigs.acks import (
    CREATE,
    PUT,
    TRIGGER,
    AckLog,
    EventThere,
    JobThere,
    Operation,
    check_acks,
    read_log,
)
from tests.rigs.check import Findings
from tests.rigs.ledger import Effect
from tests.rigs.tables import Lost

MADE = Operation(name="create-1", kind=CREATE, key="one", tries=1, answered="job-1")
FIRST = Operation(
    name="put-1", kind=PUT, key="two", number=1, tries=1, answered="job-2"
)
SECOND = Operation(
    name="put-2", kind=PUT, key="two", number=2, tries=1, answered="job-2"
)
RAN = Operation(name="trigger-1", kind=TRIGGER, key="0", tries=1, answered="run-1")
OPERATIONS = [MADE, FIRST, SECOND, RAN]
ONE = JobThere(id="job-1", key="one", revision=1, number=0)
TWO = JobThere(id="job-2", key="two", revision=2, number=2)
MADE_THERE = EventThere(
    kind=CREATE, object_id="job-1", run=None, request_id="create-1:1"
)
FIRST_THERE = EventThere(kind=CREATE, object_id="job-2", run=None, request_id="put-1:1")
SECOND_THERE = EventThere(kind=PUT, object_id="job-2", run=None, request_id="put-2:1")
RAN_THERE = EventThere(
    kind=TRIGGER, object_id="job-1", run="run-1", request_id="trigger-1:1"
)
EVENTS = [MADE_THERE, FIRST_THERE, SECOND_THERE, RAN_THERE]
EFFECT = Effect(
    at=1,
    job="trigger-1",
    key="run-1",
    attempt=1,
    fence=1,
    scheduled_for=0,
    succeeded=True,
)


def changed[T](value: T, **fields: Any) -> T:
    return dataclasses.replace(value, **fields)  # type: ignore[type-var]


def judge(
    operations: list[Operation] | None = None,
    jobs: list[JobThere] | None = None,
    events: list[EventThere] | None = None,
    effects: list[Effect] | None = None,
    runs: list[str] | None = None,
    lost: Collection[Lost] = frozenset(),
) -> Findings:
    """Return the verdict; what is not given is as it should be."""
    findings = Findings()
    check_acks(
        findings,
        OPERATIONS if operations is None else operations,
        jobs=[ONE, TWO] if jobs is None else jobs,
        events=EVENTS if events is None else events,
        effects=[EFFECT] if effects is None else effects,
        runs=["run-1"] if runs is None else runs,
        lost=lost,
    )
    return findings


def without[T](things: list[T], thing: T) -> list[T]:
    return [one for one in things if one != thing]


def test_what_is_right_is_clean() -> None:
    assert judge().lines == []


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"jobs": [TWO]}, id="job gone"),
        pytest.param({"jobs": [changed(ONE, id="job-9"), TWO]}, id="another job"),
        pytest.param({"events": without(EVENTS, MADE_THERE)}, id="create not audited"),
        pytest.param({"events": without(EVENTS, SECOND_THERE)}, id="put not audited"),
        pytest.param({"events": without(EVENTS, RAN_THERE)}, id="run not audited"),
        pytest.param({"runs": []}, id="run gone"),
        pytest.param({"effects": []}, id="run without effect"),
        pytest.param({"effects": [changed(EFFECT, succeeded=False)]}, id="run failed"),
    ],
)
def test_what_was_acknowledged_and_is_missing_is_lost(given: dict[str, Any]) -> None:
    assert judge(**given).lost == 1


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"jobs": [ONE, changed(ONE, id="job-9"), TWO]}, id="two jobs"),
        pytest.param(
            {"events": [*EVENTS, changed(MADE_THERE, request_id="create-1:2")]},
            id="created again",
        ),
        pytest.param(
            {"events": [*EVENTS, changed(RAN_THERE, request_id="trigger-1:2")]},
            id="triggered again",
        ),
        pytest.param(
            {"events": [*EVENTS, changed(MADE_THERE, request_id="abcdef")]},
            id="created by nobody",
        ),
        pytest.param({"runs": ["run-1", "run-2"]}, id="run of nobody"),
        pytest.param(
            {"effects": [EFFECT, changed(EFFECT, key="run-2")]}, id="two runs of one"
        ),
        pytest.param(
            {"effects": [EFFECT, changed(EFFECT, job="trigger-9")]},
            id="effect of nobody",
        ),
        pytest.param(
            {"effects": [EFFECT, changed(EFFECT, attempt=2)]}, id="executed again"
        ),
        pytest.param(
            {
                "effects": [EFFECT, changed(EFFECT, key="run-2")],
                "lost": {("run-1", 2)},
            },
            id="two runs of one, of which another attempt is lost",
        ),
    ],
)
def test_what_is_there_too_often_is_doubled(given: dict[str, Any]) -> None:
    assert judge(**given).doubled >= 1


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(
            {"operations": [changed(MADE, tries=2), FIRST, SECOND, RAN]},
            id="replayed without a word",
        ),
        pytest.param(
            {"operations": [changed(MADE, replayed=True), FIRST, SECOND, RAN]},
            id="no replay called one",
        ),
        pytest.param(
            {"operations": [MADE, FIRST, SECOND, changed(RAN, answered="run-2")]},
            id="another run answered",
        ),
        pytest.param(
            {"jobs": [ONE, changed(TWO, number=1, revision=1)]}, id="old definition"
        ),
        pytest.param({"jobs": [ONE, changed(TWO, revision=3)]}, id="put twice"),
        pytest.param(
            {
                "events": [
                    *without(EVENTS, SECOND_THERE),
                    changed(SECOND_THERE, kind=CREATE),
                ]
            },
            id="made anew by the second put",
        ),
    ],
)
def test_what_is_wrong_is_found(given: dict[str, Any]) -> None:
    assert not judge(**given).clean


def test_what_was_never_answered_may_be_there_or_not() -> None:
    unknown = [changed(operation, answered=None) for operation in OPERATIONS]
    assert judge(unknown).lines == []
    assert judge(unknown, [], [], [], []).lines == []
    pending = [MADE, FIRST, changed(SECOND, answered=None), RAN]
    assert judge(pending).lines == []
    before = [ONE, changed(TWO, number=1, revision=1)]
    assert judge(pending, before, without(EVENTS, SECOND_THERE)).lines == []
    twice = [EFFECT, changed(EFFECT, key="run-2")]
    assert judge(unknown, effects=twice).doubled == 1


def test_what_a_lost_attempt_did_counts_for_nothing() -> None:
    again = [EFFECT, changed(EFFECT, attempt=2)]
    assert judge(effects=again, lost={("run-1", 1)}).lines == []
    assert judge(lost={("run-1", 1)}).lost == 1


def test_a_replay_says_so_and_was_carried_out_by_an_earlier_request() -> None:
    replayed = changed(MADE, tries=2, replayed=True)
    assert judge([replayed, FIRST, SECOND, RAN]).lines == []


def test_the_log_gives_back_what_was_noted(tmp_path) -> None:
    asked = [changed(one, answered=None, tries=0) for one in OPERATIONS]
    with AckLog(tmp_path / "acks.jsonl") as log:
        for operation in asked:
            log.begin(operation)
        log.answer("create-1", tries=3, made="job-1", replayed=True)
    first, *rest = read_log(tmp_path / "acks.jsonl")
    assert first == changed(MADE, tries=3, replayed=True)
    assert rest == asked[1:]
