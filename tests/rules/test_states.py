"""States, reasons and their numbers; nothing leaves a final state by itself."""

from enum import IntEnum

import pytest

from chrono.rules import states
from chrono.rules.errors import BadValue, IllegalMove
from chrono.rules.states import (
    FINAL,
    LEGAL_MOVES,
    Outcome,
    Priority,
    Reason,
    RunState,
    TimerKind,
    check_move,
    is_final,
    may_move,
    priority_from_name,
    status_of,
)

REASONS = [
    "paused",
    "overlap",
    "buffer_full",
    "missed_skip",
    "collapsed",
    "past_deadline",
    "calendar",
    "blackout",
    "quota",
    "rate_drop",
    "circuit_open",
    "ended",
    "duplicate",
    "stale_fence",
    "tenant_suspended",
    "attempts_exhausted",
    "non_retryable",
    "operator",
    "replaced",
    "timed_out",
    "worker_lost",
    "process_crash",
    "no_handler",
    "parent_failed",
    "condition_false",
    "deleted",
    "queue_paused",
    "budget_spent",
    "resolved",
]
"""In the order of their numbers; new ones follow behind."""


def numbers(enum):
    return {member.name: member.value for member in enum}


def test_the_stored_numbers_never_change():
    assert numbers(TimerKind) == {
        "SCHEDULE": 1,
        "LATE": 2,
        "MANUAL": 3,
        "RETRY": 4,
        "BACKFILL": 5,
    }
    assert numbers(Outcome) == {"FIRED": 1, "SKIPPED": 2}
    assert numbers(RunState) == {
        "SUCCESS": 1,
        "FAILED": 2,
        "DEAD": 3,
        "CANCELLED": 4,
        "SKIPPED": 5,
        "UNKNOWN": 6,
        "SCHEDULED": 11,
        "READY": 12,
        "RUNNING": 13,
        "RETRYING": 14,
        "PARKED": 15,
        "WAITING": 16,
    }
    assert [priority.label for priority in Priority] == [
        "critical",
        "high",
        "normal",
        "low",
        "bulk",
    ]
    assert [reason.label for reason in Reason][: len(REASONS)] == REASONS
    assert [reason.value for reason in Reason] == list(range(1, len(Reason) + 1))


def test_no_number_stands_for_two_members():
    for enum in vars(states).values():
        if isinstance(enum, type) and issubclass(enum, IntEnum) and enum is not IntEnum:
            assert not [name for name, m in enum.__members__.items() if m.name != name]


def test_every_state_has_its_moves_and_status():
    assert set(LEGAL_MOVES) == set(RunState)
    words = {"pending", "running", "success", "failed", "cancelled", "skipped"}
    assert {status_of(state) for state in RunState} == words


def test_final_states_are_those_below_ten():
    for state in RunState:
        assert is_final(state) is (state < 10)


def test_a_final_state_is_left_only_by_a_persons_word():
    for state in FINAL:
        allowed = LEGAL_MOVES[state]
        if state in (RunState.DEAD, RunState.UNKNOWN):
            assert allowed == {RunState.SUCCESS, RunState.FAILED}
        else:
            assert not allowed


def test_every_waiting_state_can_reach_an_end():
    for start in set(RunState) - FINAL:
        reached, todo = set(), [start]
        while todo:
            state = todo.pop()
            if state not in reached:
                reached.add(state)
                todo += LEGAL_MOVES[state]
        assert {RunState.SUCCESS, RunState.DEAD, RunState.CANCELLED} <= reached


@pytest.mark.parametrize(
    ("old", "new", "legal"),
    [
        (RunState.READY, RunState.RUNNING, True),
        (RunState.RUNNING, RunState.SUCCESS, True),
        (RunState.RUNNING, RunState.RETRYING, True),
        (RunState.RETRYING, RunState.READY, True),
        (RunState.READY, RunState.SUCCESS, False),
        (RunState.SUCCESS, RunState.RUNNING, False),
        (RunState.CANCELLED, RunState.READY, False),
        (RunState.RUNNING, RunState.FAILED, False),
    ],
)
def test_the_table_of_moves(old, new, legal):
    assert may_move(old, new) is legal
    if legal:
        check_move(old, new)
    else:
        with pytest.raises(IllegalMove, match=old.label):
            check_move(old, new)


def test_dead_is_failed_to_the_public():
    assert status_of(RunState.DEAD) == "failed"
    assert status_of(RunState.RETRYING) == "pending"


def test_priorities_have_names_only():
    assert priority_from_name("high") is Priority.HIGH
    for wrong in (1, 0, "1", "High", "urgent", None, True):
        with pytest.raises(BadValue, match="critical, high, normal, low, bulk"):
            priority_from_name(wrong)
