"""How many due timers go into one statement."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.scheduler.batches import growing


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (0, []),
        (1, [1]),
        (250, [250]),
        (251, [250, 1]),
        (1_000, [250, 500, 250]),
        (5_000, [250, 500, 1_000, 1_000, 1_000, 1_000, 250]),
    ],
)
def test_the_first_piece_is_small_and_each_is_twice_the_one_before(count, sizes):
    pieces = growing(list(range(count)), first=250, most=1_000)
    assert [len(piece) for piece in pieces] == sizes


@given(st.integers(0, 200), st.integers(1, 30), st.integers(1, 30))
def test_pieces_hold_every_entry_once_and_in_its_order(count, first, most):
    pieces = list(growing(list(range(count)), first=first, most=most))
    assert [entry for piece in pieces for entry in piece] == list(range(count))
    assert all(0 < len(piece) <= most for piece in pieces)
