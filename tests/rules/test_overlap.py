"""Overlap: never over the bound, never past one that waits, never lost in silence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.overlap import MOST_BUFFERED, Check, Place, check, decide
from chrono.rules.policy import OVERLAP_POLICIES
from chrono.rules.states import Reason

BUFFERS = ("buffer_one", "buffer_all")
REPLACES = ("cancel_other", "terminate_other")

names = st.sampled_from(OVERLAP_POLICIES)
counts = st.integers(0, 200)


@given(names, st.integers(1, 100), counts, counts)
def test_a_run_is_made_ready_only_where_there_is_a_place(name, bound, live, buffered):
    place = decide(name, bound=bound, live=live, buffered=buffered)
    assert (place is Place.READY) is (live < bound and buffered == 0)


@given(names, st.integers(1, 100), counts, counts)
def test_without_a_place_the_policy_says_what_becomes_of_it(
    name, bound, live, buffered
):
    place = decide(name, bound=bound, live=live, buffered=buffered)
    if place is Place.READY:
        return
    if name in REPLACES:
        assert place is Place.BUFFER
    elif name in BUFFERS:
        most = 1 if name == "buffer_one" else MOST_BUFFERED
        full = buffered >= most
        assert place is (Reason.BUFFER_FULL if full else Place.BUFFER)
    else:
        assert place is Reason.OVERLAP


@given(names, st.integers(1, 5), st.lists(st.booleans(), max_size=300))
def test_a_sequence_of_runs_never_breaks_the_bounds(name, bound, steps):
    """True makes a run; False ends one, and lets the first that waits in."""
    live = buffered = 0
    for makes in steps:
        if makes:
            place = decide(name, bound=bound, live=live, buffered=buffered)
            live += place is Place.READY
            buffered += place is Place.BUFFER
        elif live:
            live -= 1
            if buffered:
                buffered -= 1
                live += 1
        assert live <= bound
        assert name in REPLACES or buffered <= MOST_BUFFERED
        assert name != "buffer_one" or buffered <= 1
        assert name not in ("skip", "allow_all") or not buffered


@pytest.mark.parametrize("most", [None, 1])
def test_the_default_asks_for_the_last_run_alone(most):
    assert check("skip", most) is Check.LAST


@pytest.mark.parametrize("name", [name for name in OVERLAP_POLICIES if name != "skip"])
@pytest.mark.parametrize("most", [1, 2, 1_000])
def test_every_other_bound_asks_for_slots(name, most):
    assert check(name, most) is Check.SLOTS
    assert check("skip", 2) is Check.SLOTS


def test_a_policy_without_a_bound_has_one_place():
    assert {name: check(name, None) for name in OVERLAP_POLICIES if name != "skip"} == {
        "buffer_one": Check.SLOTS,
        "buffer_all": Check.SLOTS,
        "cancel_other": Check.SLOTS,
        "terminate_other": Check.SLOTS,
        "allow_all": Check.NOTHING,
    }
