"""Runs that ended dead in a row."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.failures import Ended, dead_in_a_row
from chrono.rules.states import RunState

DEAD, SUCCESS, CANCELLED = RunState.DEAD, RunState.SUCCESS, RunState.CANCELLED

endings = st.lists(
    st.builds(
        Ended,
        run_id=st.uuids(),
        state=st.sampled_from([DEAD, SUCCESS, CANCELLED]),
        at=st.integers(0, 40),
    ),
    max_size=12,
)


def ended(*states):
    """Return runs that ended one after the other, a second apart."""
    return [
        Ended(run_id=uuid.UUID(int=n), state=state, at=n * 1_000)
        for n, state in enumerate(states, start=1)
    ]


def count(*states, since=0):
    return len(dead_in_a_row(ended(*states), since=since))


def test_deaths_count_from_the_last_success():
    assert count() == 0
    assert count(DEAD) == 1
    assert count(DEAD, DEAD, DEAD) == 3
    assert count(DEAD, DEAD, SUCCESS) == 0
    assert count(DEAD, SUCCESS, DEAD, DEAD) == 2


def test_what_was_called_off_is_passed_over():
    assert count(DEAD, CANCELLED, DEAD) == 2
    assert count(SUCCESS, CANCELLED) == 0


def test_what_ended_before_a_change_does_not_count():
    assert count(DEAD, DEAD, DEAD, since=1_000) == 2
    assert count(DEAD, DEAD, DEAD, since=3_000) == 0


@given(endings, st.integers(0, 40), st.randoms())
def test_the_order_in_which_they_are_read_does_not_matter(runs, since, random):
    first = dead_in_a_row(runs, since=since)
    random.shuffle(runs)
    again = dead_in_a_row(runs, since=since)
    assert {run.at for run in first} == {run.at for run in again}


@given(endings, st.integers(0, 40))
def test_no_success_is_as_late_and_the_newest_comes_first(runs, since):
    dead = dead_in_a_row(runs, since=since)
    assert all(run.state == DEAD and run.at > since for run in dead)
    assert [run.at for run in dead] == sorted((run.at for run in dead), reverse=True)
    last = max((r.at for r in runs if r.state == SUCCESS), default=-1)
    assert all(run.at >= last for run in dead)


@given(endings, st.integers(0, 40))
def test_a_death_more_adds_one_and_a_success_more_ends_the_row(runs, since):
    before = len(dead_in_a_row(runs, since=since))
    last = max((run.at for run in runs), default=0)
    for state, expected in ((DEAD, before + 1), (SUCCESS, 0)):
        more = Ended(run_id=uuid.UUID(int=0), state=state, at=max(last, since) + 1)
        assert len(dead_in_a_row([*runs, more], since=since)) == expected
