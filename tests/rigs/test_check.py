"""The rigs' verdict is red for what it must be red for; their oracle counts right."""

import dataclasses
import uuid
from collections.abc import Collection
from typing import Any

import pytest

from tests.rigs.check import (
    Findings,
    check_decisions,
    check_fences,
    check_order,
    check_runs,
)
from tests.rigs.ledger import Effect
from tests.rigs.oracle import Era, History, expected
from tests.rigs.tables import SUCCESS, Decision, JobRow, Lost, Run

RUN = uuid.UUID(int=7)
DECISION = Decision(
    job="tick",
    part=3,
    scheduled_for=10_000,
    last_for=None,
    occurrences=1,
    fired=True,
    late=False,
    reason=None,
    run=RUN,
    fence=5,
    version=1,
    decided_at=10.0,
    committed_at=10.0,
)
SETTLED = Run(
    job="tick",
    id=RUN,
    fence=5,
    state=SUCCESS,
    attempt=1,
    dispatched_at=10.0,
    started_at=10.0,
    finished_at=10.1,
)
EFFECT = Effect(
    at=10_050,
    job="tick",
    key=str(RUN),
    attempt=1,
    fence=5,
    scheduled_for=10_000,
    succeeded=True,
)
DUE = {"tick": {10_000}}


def changed[T](value: T, **fields: Any) -> T:
    return dataclasses.replace(value, **fields)  # type: ignore[type-var]


def judge(
    decisions: list[Decision] | None = None,
    runs: list[Run] | None = None,
    effects: list[Effect] | None = None,
    due: dict[str, set[int]] | None = None,
    lost: Collection[Lost] = frozenset(),
) -> Findings:
    """Return the verdict; what is not given is as it should be."""
    findings = Findings()
    decisions = [DECISION] if decisions is None else decisions
    check_decisions(findings, decisions, DUE if due is None else due)
    check_runs(
        findings,
        decisions,
        [SETTLED] if runs is None else runs,
        [EFFECT] if effects is None else effects,
        {},
        lost,
    )
    return findings


def test_what_is_right_is_clean() -> None:
    assert judge().clean


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"due": {"tick": {10_000, 11_000}}}, id="never decided"),
        pytest.param({"runs": []}, id="fired and not settled"),
        pytest.param({"effects": []}, id="succeeded without an effect"),
        pytest.param(
            {"effects": [changed(EFFECT, succeeded=False)]}, id="effect that failed"
        ),
    ],
)
def test_what_is_missing_is_lost(given: dict[str, Any]) -> None:
    assert judge(**given).lost == 1


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"decisions": [DECISION, DECISION]}, id="decided twice"),
        pytest.param({"effects": [EFFECT, EFFECT]}, id="effect twice"),
        pytest.param(
            {"effects": [EFFECT, changed(EFFECT, key="other")]}, id="effect of no run"
        ),
        pytest.param(
            {"runs": [SETTLED, changed(SETTLED, id=uuid.UUID(int=8))]},
            id="run of no occurrence",
        ),
    ],
)
def test_what_is_there_too_often_is_doubled(given: dict[str, Any]) -> None:
    assert judge(**given).doubled >= 1


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"due": {"tick": set()}}, id="not due"),
        pytest.param({"effects": [changed(EFFECT, at=9_999)]}, id="early"),
        pytest.param({"effects": [changed(EFFECT, job="tock")]}, id="another job"),
        pytest.param({"effects": [changed(EFFECT, attempt=2)]}, id="attempt left out"),
        pytest.param({"runs": [changed(SETTLED, state=3)]}, id="another state"),
        pytest.param({"decisions": [changed(DECISION, fence=0)]}, id="no fence"),
        pytest.param({"decisions": [changed(DECISION, occurrences=2)]}, id="count"),
    ],
)
def test_what_is_wrong_is_found(given: dict[str, Any]) -> None:
    assert not judge(**given).clean


def test_a_decision_stands_for_the_occurrences_that_it_spans() -> None:
    spans = changed(
        DECISION, fired=False, reason=5, run=None, last_for=12_000, occurrences=3
    )
    due = {"tick": {10_000, 11_000, 12_000}}
    assert judge([spans], [], [], due).clean
    assert judge([changed(spans, occurrences=2)], [], [], due).lines
    assert judge([spans], [], [], {"tick": {*due["tick"], 13_000}}).lost == 1


def test_fences_that_fall_are_found_and_the_skips_of_edits_are_not() -> None:
    later = changed(DECISION, committed_at=11.0, fence=4)
    findings = Findings()
    check_order(findings, [DECISION, changed(later, fence=0)])
    assert findings.clean
    check_order(findings, [DECISION, later])
    assert len(findings.lines) == 1


def test_a_takeover_that_does_not_rise_is_found() -> None:
    for taken, wrong in (
        ([(3, 5), (4, 1), (3, 6)], 0),
        ([(3, 5), (3, 5)], 1),
        ([(3, 5), (3, 4), (3, 6)], 1),
    ):
        findings = Findings()
        check_fences(findings, taken)
        assert len(findings.lines) == wrong


@pytest.mark.parametrize("did", [True, False])
def test_an_attempt_that_ended_with_its_worker_may_have_had_its_effect_or_not(
    did: bool,
) -> None:
    again = changed(EFFECT, attempt=2)
    effects = [EFFECT, again] if did else [again]
    runs = [changed(SETTLED, attempt=2)]
    assert judge(runs=runs, effects=effects, lost={(str(RUN), 1)}).clean
    assert not judge(runs=runs, effects=effects).clean


@pytest.mark.parametrize(
    "effects",
    [
        pytest.param([EFFECT], id="the last attempt had none"),
        pytest.param([EFFECT, EFFECT, changed(EFFECT, attempt=2)], id="lost one twice"),
        pytest.param(
            [changed(EFFECT, attempt=2), changed(EFFECT, attempt=2)],
            id="last one twice",
        ),
    ],
)
def test_besides_a_lost_attempt_all_else_counts(effects: list[Effect]) -> None:
    runs = [changed(SETTLED, attempt=2)]
    assert not judge(runs=runs, effects=effects, lost={(str(RUN), 1)}).clean


@pytest.mark.parametrize(
    ("definition", "instants"),
    [
        (
            {"interval": "1s", "starts_at": "1970-01-01T00:00:10.500+00:00"},
            {10_500, 11_500, 12_500},
        ),
        (
            {"interval": "2s", "starts_at": "1970-01-01T00:00:00+00:00"},
            {10_000, 12_000},
        ),
        ({"run_at": "1970-01-01T00:00:12+00:00"}, {12_000}),
        ({"run_at": "1970-01-01T00:00:13+00:00"}, set()),
        ({"cron": "0-59/2 * * * * *", "seconds": True}, {10_000, 12_000}),
        ({"cron": "1-59/2 * * * * *", "seconds": True}, {11_000}),
        ({"cron": "* * * * *"}, set()),
    ],
)
def test_the_oracle_knows_the_forms_of_the_rigs(
    definition: dict[str, Any], instants: set[int]
) -> None:
    assert expected([Era(definition=definition, after=9_000, until=12_900)]) == instants


def test_the_oracle_scans_minutes() -> None:
    every_minute = Era(definition={"cron": "* * * * *"}, after=60_000, until=180_000)
    assert expected([every_minute]) == {120_000, 180_000}


def test_each_definition_decides_between_its_edits() -> None:
    def row(activated_at: int) -> JobRow:
        return JobRow(
            key="tick",
            id=RUN,
            version=1,
            activated_at=activated_at,
            committed_at=0.0,
        )

    history = History()
    old = {"interval": "1s", "starts_at": "1970-01-01T00:00:00+00:00"}
    history.begin(old, row(1_000))
    history.begin({**old, "interval": "3s"}, row(3_000))
    history.end(row(6_500))
    assert expected(history.eras["tick"]) == {2_000, 3_000, 6_000}
