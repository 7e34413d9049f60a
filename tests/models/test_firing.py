"""Everything that leaders, people, time and crashes can do, in every order.

`LONG_MODELS=10` walks through millions of states instead of some hundred thousand.
"""

import os
from typing import Any

import pytest

from tests.models.firing import Found, Model, Rules, Tables, explore

LONG = int(os.environ.get("LONG_MODELS", "1")) > 1
# Leaders, edits, manual runs, the last instant.
SHORT_WALKS = [(2, 1, 1, 1), (2, 2, 0, 1), (2, 1, 0, 2), (3, 1, 0, 1), (1, 2, 1, 2)]
LONG_WALKS = [(2, 1, 1, 2), (2, 2, 0, 2), (3, 1, 0, 2), (1, 3, 1, 2), (1, 2, 1, 3)]


def walk(size: tuple[int, int, int, int], **rules: Any) -> Found:
    """Walk through a model of this size, with some rules changed."""
    leaders, edits, triggers, until = size
    found = explore(
        Model(Rules(**rules), until=until),
        Tables(edits_left=edits, triggers_left=triggers),
        leaders=leaders,
    )
    print(f"\n{found.states:,} states of {size} {found.fault} {found.steps}")
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("size", LONG_WALKS if LONG else SHORT_WALKS, ids=str)
def test_no_state_is_wrong_and_none_is_without_a_way_out(
    size: tuple[int, int, int, int],
) -> None:
    found = walk(size)
    assert found.fault == "", found.steps
    assert found.states > 20_000


@pytest.mark.parametrize(
    ("rules", "size", "fault"),
    [
        ({"fence": False}, (2, 0, 0, 1), "a deposed leader fired"),
        ({"epoch": False}, (1, 1, 0, 1), "a deleted job ran"),
        ({"edits_raise_epoch": False}, (1, 1, 0, 1), "a deleted job ran"),
        (
            {"one_statement": False, "unique_key": False},
            (2, 0, 0, 1),
            "a run was made twice",
        ),
        (
            {"one_statement": False, "run_first": False},
            (2, 0, 0, 1),
            "what is due is never decided",
        ),
        ({"reads_carry_epochs": False}, (1, 1, 0, 1), "a deleted job ran"),
        ({"looks_drop_changed": False}, (1, 1, 0, 1), "a deleted job ran"),
        ({"edits_decide_past": False}, (1, 1, 0, 1), "what is due is never decided"),
        ({"plans_begin_now": False}, (1, 2, 0, 1), "a run that nothing asked for"),
        ({"deletes_cancel": False}, (1, 1, 1, 1), "a deleted job ran"),
        ({"groups_apart": False}, (1, 1, 1, 2), "what is due is never decided"),
    ],
    ids=str,
)
def test_a_rule_taken_away_is_missed(
    rules: dict[str, bool], size: tuple[int, int, int, int], fault: str
) -> None:
    assert walk(size, **rules).fault == fault


@pytest.mark.parametrize("wall", ["one_statement", "unique_key"])
def test_each_of_the_two_walls_against_a_second_run_holds_alone(wall: str) -> None:
    # The move of the timer with its run, and the key of the ledger.
    assert walk((2, 0, 1, 1), **{wall: False}).fault == ""
