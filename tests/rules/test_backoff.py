"""Backoff with full jitter stays between nothing and its bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.backoff import ceiling, full_jitter

bases = st.integers(0, 10**6)
caps = st.integers(0, 10**9)
draws = st.floats(0, 1, exclude_max=True)


@given(st.integers(1, 10**9), bases, caps, draws)
def test_a_wait_lies_between_nothing_and_the_bound(attempts, base, cap, draw):
    wait = full_jitter(attempts, base, cap, draw)
    assert 0 <= wait <= cap
    assert wait <= base * 2 ** min(attempts - 1, 80)


@given(st.integers(1, 100), bases, caps)
def test_the_bound_doubles_up_to_the_cap(attempts, base, cap):
    now, then = ceiling(attempts, base, cap), ceiling(attempts + 1, base, cap)
    assert then == min(cap, now * 2) or now == cap


@pytest.mark.parametrize(
    ("attempts", "bound"),
    [(1, 1000), (2, 2000), (5, 16_000), (10, 512_000), (11, 900_000)],
)
def test_the_first_retry_waits_at_most_the_base(attempts, bound):
    assert ceiling(attempts, 1000, 900_000) == bound
    assert full_jitter(attempts, 1000, 900_000, 0.0) == 0
    assert full_jitter(attempts, 1000, 900_000, 0.5) == bound // 2


def test_there_is_no_wait_before_the_first_failure():
    with pytest.raises(ValueError, match="counts from 1"):
        full_jitter(0, 1000, 900_000, 0.5)
