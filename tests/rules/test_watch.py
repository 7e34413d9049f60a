"""What is told of breaches."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.watch import Breach, Change, Sight, WatchKind, changes, sight

breaches = st.builds(
    Breach,
    kind=st.sampled_from(WatchKind),
    job_id=st.sampled_from([uuid.UUID(int=n) for n in range(3)]),
    run_id=st.sampled_from([uuid.UUID(int=n) for n in range(3)]),
)
looks = st.dictionaries(breaches, st.sampled_from(Sight))


def carried_out(known, found):
    """Return what is open after changes were written."""
    begun = {breach for breach, how in found.items() if how is Change.BEGINS}
    gone = {breach for breach, how in found.items() if how is not Change.BEGINS}
    return (known | begun) - gone


@given(looks, st.sets(breaches))
def test_what_is_told_once_is_not_told_again(seen, known):
    found = changes(seen, known)
    assert changes(seen, carried_out(known, found)) == {}


@given(looks, st.sets(breaches))
def test_afterwards_open_is_what_holds_and_what_was_not_looked_at(seen, known):
    holding = {breach for breach, how in seen.items() if how is Sight.HOLDS}
    unseen = known - set(seen)
    assert carried_out(known, changes(seen, known)) == holding | unseen


@given(st.lists(looks, max_size=8))
def test_beginnings_and_ends_take_turns(steps):
    known, told = set(), {}
    for seen in steps:
        found = changes(seen, known)
        for breach, how in found.items():
            told.setdefault(breach, []).append(how)
        known = carried_out(known, found)
    for history in told.values():
        assert history[::2] == [Change.BEGINS] * len(history[::2])
        assert Change.BEGINS not in history[1::2]


@given(looks, st.sets(breaches))
def test_nothing_is_told_of_what_is_stopped(seen, known):
    for breach, how in changes(seen, known).items():
        if seen[breach] is Sight.QUIET:
            assert how is Change.LAPSES


moments = st.integers(0, 1_000)


@given(moments, moments, moments)
def test_it_holds_from_the_first_millisecond_beyond_the_bound(begun, bound, now):
    expected = Sight.HOLDS if now > begun + bound else Sight.OVER
    assert sight(begun, bound=bound, now=now) is expected
    assert sight(begun, bound=None, now=now) is Sight.OVER
    assert sight(None, bound=bound, now=now) is Sight.OVER
    assert sight(begun, bound=bound, now=now, stopped=True) is Sight.QUIET


def test_each_kind_names_its_policy_and_its_number_stays():
    assert [(kind.value, kind.label, kind.policy) for kind in WatchKind] == [
        (1, "late", "late_after"),
        (2, "long", "max_runtime"),
        (3, "no_success", "max_time_since_success"),
    ]
