"""Everything that workers, sweeper, a person and crashes can do, in every order.

`LONG_MODELS=10` walks through millions of states instead of some hundred thousand.
"""

import os
from typing import Any

import pytest

from tests.models.leasing import Found, Model, Rules, State, explore

LONG = int(os.environ.get("LONG_MODELS", "1")) > 1
# Attempts, whether it may start once, faults, cancels.
SHORT_WALKS = [(2, False, 1, 1), (2, True, 2, 1), (2, False, 2, 0)]
LONG_WALKS = [(2, False, 2, 1), (3, False, 2, 1), (3, True, 3, 1)]


def walk(size: tuple[int, bool, int, int], **rules: Any) -> Found:
    """Walk through a model of this size, with some rules changed."""
    attempts, once, faults, cancels = size
    found = explore(
        Model(Rules(**rules), attempts=attempts, once=once),
        State(faults_left=faults, cancels_left=cancels),
    )
    print(f"\n{found.states:,} states of {size} {found.fault} {found.steps}")
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("size", LONG_WALKS if LONG else SHORT_WALKS, ids=str)
def test_no_state_is_wrong_and_none_is_without_a_way_out(
    size: tuple[int, bool, int, int],
) -> None:
    found = walk(size)
    assert found.fault == "", found.steps
    assert found.states > 1_000


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("rules", "size", "fault"),
    [
        ({"claims_move": False}, (2, False, 0, 0), "two leases at a time"),
        (
            {"claims_pass_withdrawn": False},
            (2, False, 0, 1),
            "a cancelled run was started",
        ),
        ({"settles_by_token": False}, (2, False, 1, 0), "a stale result was accepted"),
        (
            {"rescues_by_token": False},
            (2, False, 2, 0),
            "a run was taken from a living worker",
        ),
        ({"one_statement": False}, (2, False, 1, 0), "the run never ends"),
        ({"cancel_outlives": False}, (2, False, 1, 1), "a cancelled run was started"),
        (
            {"marks_look_again": False},
            (2, False, 1, 0),
            "a healthy worker was taken for dead",
        ),
        (
            {"beats_count": False},
            (2, False, 2, 0),
            "a healthy worker was taken for dead",
        ),
        (
            {"only_dead_are_rescued": False},
            (2, False, 1, 0),
            "a run was taken from a living worker",
        ),
        (
            {"unknown": False},
            (2, True, 1, 0),
            "a run that may start once was started again",
        ),
        (
            {"final_failures": False},
            (2, True, 0, 0),
            "a run that may start once was started again",
        ),
    ],
    ids=str,
)
def test_a_rule_taken_away_is_missed(
    rules: dict[str, bool], size: tuple[int, bool, int, int], fault: str
) -> None:
    assert walk(size, **rules).fault == fault
