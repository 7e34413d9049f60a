"""A forecast is what walking through every job one by one would find."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.errors import BadValue
from chrono.rules.forecast import WIDTHS, Stretch, Tally, stretch_of
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND, parse_instant
from chrono.rules.schedule import (
    CronSchedule,
    FixedDelay,
    Interval,
    Once,
    next_after,
)

MARCH = parse_instant("2026-03-08T00:00:00Z")
"""In New York the clocks change on this day."""

moments = st.integers(MARCH - DAY, MARCH + 2 * DAY)
ends = st.one_of(st.none(), moments)
crons = st.builds(
    CronSchedule,
    st.sampled_from(
        ["* * * * *", "*/7 * * * *", "30 2 * * *", "0 9 * * 1-5", "15,45 1-4 * * *"]
    ),
    st.sampled_from(["UTC", "America/New_York", "Asia/Kolkata"]),
    starts_at=st.one_of(st.none(), moments),
    ends_at=ends,
)
seconds = st.builds(
    CronSchedule, st.sampled_from(["*/20 3 * * * *", "59 */5 2 * * *"])
).map(lambda one: CronSchedule(one.expression, seconds=True))
intervals = st.builds(
    Interval,
    every=st.integers(7 * SECOND, 2 * DAY),
    anchor=st.integers(MARCH - 9 * DAY, MARCH + 2 * DAY),
    ends_at=ends,
)
onces = st.builds(Once, moments)
jobs = st.tuples(
    st.one_of(crons, seconds, intervals, onces),
    st.lists(st.integers(0, 90 * SECOND), min_size=1, max_size=4),
)
stretches = st.builds(
    Stretch,
    start=st.integers(0, 24 * 60).map(lambda minute: MARCH + minute * MINUTE),
    width=st.sampled_from([SECOND, MINUTE, HOUR]),
    bins=st.integers(1, 90),
)


def tally_of(stretch, demand):
    tally = Tally(stretch)
    for schedule, offsets in demand:
        for offset in offsets:
            tally.crowd(schedule, max(offsets) + 1).offsets.append(offset)
    return tally


def walked(schedule, after, until):
    while (after := next_after(schedule, after)) is not None and after <= until:
        yield after


def plainly(stretch, demand):
    """Count run by run."""
    nominal, due = [0] * stretch.bins, [0] * stretch.bins
    for schedule, offsets in demand:
        for moment in walked(schedule, stretch.start - HOUR, stretch.end):
            for counts, offset in ((nominal, 0), *((due, o) for o in offsets)):
                place = (moment + offset - stretch.start) // stretch.width
                if 0 <= place < stretch.bins:
                    counts[place] += len(offsets) if counts is nominal else 1
    return nominal, due


@given(stretches, st.lists(jobs, max_size=5))
def test_each_bin_has_the_runs_that_lie_in_it(stretch, demand):
    counts = tally_of(stretch, demand).counts()
    assert (counts.nominal, counts.due) == plainly(stretch, demand)


def within(stretch, schedule):
    """Return the schedule with no fire outside of a stretch."""
    last = stretch.end - 1
    if isinstance(schedule, Once):
        return Once(stretch.start + schedule.at % (stretch.end - stretch.start))
    if isinstance(schedule, Interval):
        return replace(schedule, anchor=stretch.start, ends_at=last)
    return replace(schedule, starts_at=stretch.start, ends_at=last)


@given(stretches, st.lists(jobs, max_size=5))
def test_jitter_moves_runs_and_loses_none(stretch, demand):
    demand = [(within(stretch, schedule), offsets) for schedule, offsets in demand]
    room = 2 * MINUTE // stretch.width + 1
    longer = replace(stretch, bins=stretch.bins + room)
    counts = tally_of(longer, demand).counts()
    runs = sum(
        len(offsets) * len(list(walked(schedule, stretch.start - 1, stretch.end)))
        for schedule, offsets in demand
    )
    assert sum(counts.nominal) == sum(counts.due) == runs


@given(stretches, st.integers(1, 89), st.lists(jobs, max_size=3))
def test_two_stretches_side_by_side_count_what_one_does(stretch, border, demand):
    border = min(border, stretch.bins)
    parts = (
        Stretch(start=stretch.start, width=stretch.width, bins=border),
        Stretch(
            start=stretch.start + border * stretch.width,
            width=stretch.width,
            bins=stretch.bins - border,
        ),
    )
    whole = tally_of(stretch, demand).counts()
    first, second = (tally_of(part, demand).counts() for part in parts)
    assert whole.nominal == first.nominal + second.nominal
    assert whole.due == first.due + second.due


@given(stretches, intervals, st.lists(st.integers(0, 2 * DAY), max_size=8))
def test_intervals_of_one_length_are_counted_together(stretch, interval, shifts):
    demand = [
        (Interval(every=interval.every, anchor=MARCH - 9 * DAY + shift), [0])
        for shift in shifts
    ]
    counts = tally_of(stretch, demand).counts()
    assert (counts.nominal, counts.due) == plainly(stretch, demand)


def test_ten_thousand_jobs_of_one_schedule_are_enumerated_once():
    day = Stretch(start=MARCH, width=MINUTE, bins=1_440)
    one, many = Tally(day), Tally(day)
    schedule = CronSchedule("*/5 * * * *", "America/New_York")
    one.crowd(schedule, MINUTE).offsets.append(0)
    for number in range(10_000):
        many.crowd(schedule, MINUTE).offsets.append(number * 6)
    assert many.steps == one.steps < 500
    assert sum(many.counts().nominal) == 288 * 10_000


def test_an_interval_costs_the_same_however_often_it_fires():
    day = Stretch(start=MARCH, width=MINUTE, bins=1_440)
    tally = Tally(day)
    for number in range(1_000):
        crowd = tally.crowd(Interval(every=SECOND, anchor=MARCH - number), 0)
        crowd.offsets.append(0)
    assert tally.steps < 60_000
    assert tally.counts().nominal == [60_000] * 1_440


def test_a_fixed_delay_cannot_be_told():
    tally = Tally(Stretch(start=MARCH, width=MINUTE, bins=1))
    assert tally.crowd(FixedDelay(delay=MINUTE, anchor=MARCH), 0) is None


def test_a_stretch_is_made_of_whole_bins():
    found = stretch_of(
        start=MARCH + 90 * SECOND, end=MARCH + 181 * SECOND, width=MINUTE, most=3
    )
    assert found == Stretch(start=MARCH + MINUTE, width=MINUTE, bins=3)
    assert found.end == MARCH + 4 * MINUTE


@pytest.mark.parametrize(
    ("length", "width", "field"),
    [
        (0, WIDTHS["minute"], "to"),
        (-HOUR, WIDTHS["hour"], "to"),
        (DAY + 1, WIDTHS["minute"], "per"),
        (HOUR, WIDTHS["second"], "per"),
    ],
)
def test_a_stretch_has_an_end_and_not_too_many_bins(length, width, field):
    with pytest.raises(BadValue) as refused:
        stretch_of(start=MARCH, end=MARCH + length, width=width, most=1_440)
    assert refused.value.field == field
