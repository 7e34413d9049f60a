"""Why an instant is no occurrence: the field that does not match, by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.instants import HOUR, MINUTE, parse_instant
from chrono.rules.schedule import (
    CronSchedule,
    FixedDelay,
    Interval,
    Once,
    next_after,
)
from chrono.rules.why import is_occurrence, mismatches

MONDAY = parse_instant("2026-11-30T09:00:00Z")


def why(schedule, text):
    return [
        (one.field, one.column) for one in mismatches(schedule, parse_instant(text))
    ]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("2026-11-30T09:30:00Z", []),
        ("2026-11-30T09:31:00Z", ["minute"]),
        ("2026-11-30T10:30:00Z", ["hour"]),
        ("2026-11-29T09:30:00Z", ["day"]),
        ("2026-11-30T10:31:05Z", ["second", "minute", "hour"]),
        ("2026-11-30T09:30:00.250Z", ["second"]),
        ("2026-10-26T09:30:00Z", ["month", "day"]),
    ],
)
def test_the_column_that_does_not_match_is_named(text, columns):
    schedule = CronSchedule("30 9 * 11-12 MON-FRI")
    assert why(schedule, text) == [("cron", column) for column in columns]


def test_columns_are_read_in_the_zone_of_the_schedule():
    schedule = CronSchedule("0 9 * * *", timezone="America/New_York")
    assert why(schedule, "2026-11-30T14:00:00Z") == []
    [one] = mismatches(schedule, MONDAY)
    assert one.text == "The hour in America/New_York is 4; it fires at 9."


def test_a_day_names_both_day_columns():
    [one] = mismatches(CronSchedule("0 9 1 * TUE"), MONDAY)
    assert one.text == (
        "Monday 2026-11-30 in UTC is no day of day-of-month 1 and day-of-week tue."
    )


def test_the_second_pass_of_a_repeated_hour_is_told():
    schedule = CronSchedule("30 1 * * *", timezone="America/New_York")
    assert why(schedule, "2026-11-01T05:30:00Z") == []
    assert why(schedule, "2026-11-01T06:30:00Z") == [("dst_fold", None)]


def test_bounds_are_told_beside_what_else_does_not_match():
    schedule = CronSchedule("0 9 * * *", starts_at=MONDAY, ends_at=MONDAY + HOUR)
    assert why(schedule, "2026-11-29T09:00:00Z") == [("starts_at", None)]
    assert why(schedule, "2026-12-01T10:00:00Z") == [
        ("ends_at", None),
        ("cron", "hour"),
    ]


def test_an_interval_says_how_far_off_it_is():
    [one] = mismatches(Interval(every=15 * MINUTE, anchor=MONDAY), MONDAY + 20 * MINUTE)
    assert one.field == "interval"
    assert one.text.endswith("this is 5m after one of them.")
    assert why(Interval(every=HOUR, anchor=MONDAY), "2026-11-30T08:00:00Z") == [
        ("starts_at", None)
    ]


def test_one_shots_and_delays_say_what_they_are():
    assert why(Once(at=MONDAY), "2026-11-30T10:00:00Z") == [("run_at", None)]
    delay = FixedDelay(delay=HOUR, anchor=MONDAY)
    assert why(delay, "2026-11-30T08:00:00Z") == [("fixed_delay", None)]


@given(
    st.sampled_from(["*/7 3-5 * * *", "0 9 1 * TUE", "30 2 * * *", "0 0 L * *"]),
    st.sampled_from(["UTC", "America/New_York", "Australia/Lord_Howe"]),
    st.integers(0, 2 * 365 * 24 * 60),
)
def test_an_instant_is_explained_exactly_where_nothing_fires(cron, zone, minutes):
    schedule = CronSchedule(cron, timezone=zone)
    for moment in (MONDAY + minutes * MINUTE, next_after(schedule, MONDAY + minutes)):
        fires = is_occurrence(schedule, moment)
        assert (mismatches(schedule, moment) == []) is fires
