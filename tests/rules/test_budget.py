"""The retry budget: a share of the first attempts, and a few whatever the traffic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.budget import FLOOR, WINDOW, Budget, BudgetPolicy, share, spend
from chrono.rules.instants import SECOND

NOW = 1_795_962_600_000
POLICY = BudgetPolicy()


def ask(budget, wanted, firsts=0, now=NOW, policy=POLICY):
    return spend(budget, policy=policy, firsts=firsts, wanted=wanted, now=now)


def test_a_new_budget_has_its_floor():
    budget, granted = ask(Budget(), 100)
    assert granted == 5
    assert (budget.granted, budget.refused) == (5, 95)
    assert ask(budget, 100)[1] == 0


def test_the_floor_comes_anew_within_ten_seconds():
    budget, _ = ask(Budget(), 100)
    assert ask(budget, 100, now=NOW + FLOOR // 5)[1] == 1
    assert ask(budget, 100, now=NOW + FLOOR)[1] == 5
    assert ask(budget, 100, now=NOW + 100 * FLOOR)[1] == 5


def test_a_tenth_of_the_first_attempts_may_be_tried_again():
    budget, granted = ask(Budget(), 10_000, firsts=6_000)
    assert granted == 600
    assert ask(budget, 10_000, firsts=1_000, now=NOW + SECOND)[1] == 100


def test_what_was_called_longer_ago_than_a_minute_fades():
    budget, _ = ask(Budget(), 0, firsts=6_000)
    _, soon = ask(budget, 10_000, now=NOW + WINDOW)
    _, late = ask(budget, 10_000, now=NOW + 10 * WINDOW)
    assert 200 < soon < 230
    assert late == 5


def test_a_ratio_of_nothing_and_no_floor_grant_nothing():
    policy = BudgetPolicy(ratio=0.0, min_concurrent=0)
    assert ask(Budget(), 5, firsts=1_000, policy=policy)[1] == 0
    assert share(Budget(), policy, NOW) == 0.0


def test_a_clock_that_goes_back_brings_no_tokens():
    budget, _ = ask(Budget(), 5)
    assert ask(budget, 5, now=NOW - 60 * SECOND)[1] == 0
    assert ask(budget, 5, now=NOW - 60 * SECOND)[0].at == NOW


@given(
    st.lists(
        st.tuples(st.integers(0, 5_000), st.integers(0, 500), st.integers(0, 500)),
        max_size=50,
    ),
    st.floats(0, 1),
    st.integers(0, 50),
)
def test_retries_never_exceed_the_share_and_the_floor(asked, ratio, floor):
    policy = BudgetPolicy(ratio=ratio, min_concurrent=floor)
    budget, now, firsts = Budget(at=NOW), NOW, 0
    for wait, first, wanted in asked:
        now, firsts = now + wait, firsts + first
        budget, granted = ask(budget, wanted, first, now, policy)
        assert 0 <= granted <= wanted
        assert budget.tokens >= 0
        assert 0 <= share(budget, policy, now) <= 1
    bound = ratio * firsts + floor * (now - NOW) / FLOOR
    assert budget.granted <= bound + 1e-6


@pytest.mark.parametrize("wanted", [1, 3, 7])
def test_the_same_budget_is_shared_by_who_asks_at_once(wanted):
    """One after the other, as the row's lock has them: together as much as one."""
    budget, total = Budget(), 0
    for _ in range(10):
        budget, granted = ask(budget, wanted)
        total += granted
    assert total == 5
