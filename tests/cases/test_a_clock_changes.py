"""Clock changes: what comes twice, or not at all, is neither doubled nor lost."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.buckets import bucket_name
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND
from chrono.rules.preview import preview
from chrono.rules.schedule import (
    CronSchedule,
    Interval,
    latest_until,
    next_after,
    occurrences,
)
from tests.cases.fires import at, fires, following, shown
from tests.support import clock_changes

NEW_YORK = "America/New_York"


def test_a01_a_time_in_the_missing_hour_fires_at_its_end_and_next_day_as_ever() -> None:
    assert fires("30 2 * * *", NEW_YORK, "2026-03-08 05:00", 2) == [
        "2026-03-08 07:00",
        "2026-03-09 06:30",
    ]


@given(st.integers(0, 59), st.integers(0, 23), st.integers(1990, 2060))
def test_a01_fires_of_a_daily_time_are_23_to_25_hours_apart(
    minute: int, hour: int, year: int
) -> None:
    schedule = CronSchedule(f"{minute} {hour} * * *", NEW_YORK)
    found = list(
        occurrences(schedule, at(f"{year}-01-01 00:00"), at(f"{year}-12-31 00:00"))
    )
    assert len(found) in (364, 365)
    assert all(23 * HOUR <= b - a <= 25 * HOUR for a, b in pairwise(found))


def test_a03_a_time_that_comes_twice_fires_the_first_time_alone() -> None:
    assert fires("0 2 * * *", "Europe/Berlin", "2023-10-28 12:00", 2) == [
        "2023-10-29 00:00",
        "2023-10-30 01:00",
    ]


def test_a04_a_weekly_noon_is_one_fire_in_the_week_of_winter_time() -> None:
    assert fires("0 12 * * 1", "Europe/Amsterdam", "2013-10-27 12:00", 2) == [
        "2013-10-28 11:00",
        "2013-11-04 11:00",
    ]


def test_a05_an_afternoon_keeps_its_wall_time_on_the_day_of_a_change() -> None:
    assert fires("4 16 * * *", NEW_YORK, "2025-03-08 12:00", 3) == [
        "2025-03-08 21:04",
        "2025-03-09 20:04",
        "2025-03-10 20:04",
    ]


def test_a07_a_daily_time_goes_on_after_the_hour_that_came_twice() -> None:
    assert fires("20 2 * * *", "Europe/Paris", "2020-10-24 12:00", 2) == [
        "2020-10-25 00:20",
        "2020-10-26 01:20",
    ]


def test_a11_every_five_minutes_goes_forward_through_the_second_pass() -> None:
    assert fires("*/5 * * * *", "Europe/Zurich", "2023-10-29 00:55", 13) == [
        *(f"2023-10-29 01:{minute:02}" for minute in range(0, 60, 5)),
        "2023-10-29 02:00",
    ]


def test_a12_the_next_and_the_last_of_a_week_are_right_on_both_sides_of_a_change() -> (
    None
):
    schedule = CronSchedule("10 3 * * 0", "Europe/Prague")
    assert following(schedule, "2025-10-19 10:00") == ["2025-10-26 02:10"]
    last, _ = latest_until(
        schedule, at("2025-10-01 00:00"), at("2025-10-19 10:00"), 100
    )
    assert shown(last) == "2025-10-19 01:10"


def test_a13_half_an_hour_left_out_moves_no_full_hour() -> None:
    assert fires("0 * * * *", "Australia/Lord_Howe", "2019-10-05 15:13") == [
        "2019-10-05 16:00"
    ]


def test_a13_what_comes_next_what_was_last_and_what_is_due_agree_at_every_change() -> (
    None
):
    changes = [
        int(late.timestamp()) * SECOND
        for year in range(2019, 2025)
        for late in clock_changes.changes("Australia/Lord_Howe", year)
    ]
    assert len(changes) == 12
    for expression in ("0 * * * *", "*/15 1-2 * * *", "30 2 * * *", "10,40 1,2 * * *"):
        schedule = CronSchedule(expression, "Australia/Lord_Howe")
        for change in changes:
            start, end = change - 12 * HOUR, change + 6 * HOUR
            walked = list(occurrences(schedule, start, end))
            assert walked
            for moment in range(start + MINUTE, end, MINUTE):
                due = next_after(schedule, moment - 1) == moment
                assert due == (moment in walked)
                before = [fire for fire in walked if fire <= moment]
                last, _ = latest_until(schedule, start, moment, 1_000)
                assert last == (before[-1] if before else None)


def test_a16_half_an_hour_that_comes_twice_fires_once() -> None:
    assert fires("45 1 * * *", "Australia/Lord_Howe", "2026-04-04 12:00", 2) == [
        "2026-04-04 14:45",
        "2026-04-05 15:15",
    ]


def test_a17_two_times_of_an_hour_that_comes_twice_fire_once_each() -> None:
    assert fires("0,30 1 * * *", "Europe/London", "2026-10-24 12:00", 3) == [
        "2026-10-25 00:00",
        "2026-10-25 00:30",
        "2026-10-26 01:00",
    ]


def test_a19_every_half_hour_keeps_its_pace_through_the_hour_that_comes_twice() -> None:
    assert fires("*/30 * * * *", NEW_YORK, "2026-11-01 05:15", 5) == [
        "2026-11-01 05:30",
        "2026-11-01 06:00",
        "2026-11-01 06:30",
        "2026-11-01 07:00",
        "2026-11-01 07:30",
    ]
    seconds = CronSchedule("*/15 * * * * *", NEW_YORK, seconds=True)
    found = list(occurrences(seconds, at("2026-11-01 04:00"), at("2026-11-01 08:00")))
    assert {b - a for a, b in pairwise(found)} == {15 * SECOND}


def test_a20_every_four_hours_goes_on_after_a_start_that_is_left_out() -> None:
    assert fires("0 2/4 * * *", "Australia/Sydney", "2019-10-05 15:00", 3) == [
        "2019-10-05 16:00",
        "2019-10-05 19:00",
        "2019-10-05 23:00",
    ]


def test_a21_a_midnight_that_is_left_out_does_not_take_its_day_along() -> None:
    assert fires("0 0 * * *", "Africa/Cairo", "2026-04-23 12:00", 2) == [
        "2026-04-23 22:00",
        "2026-04-24 21:00",
    ]
    assert fires("0 */2 * * *", "Africa/Cairo", "2026-04-23 19:30", 4) == [
        "2026-04-23 20:00",
        "2026-04-23 23:00",
        "2026-04-24 01:00",
        "2026-04-24 03:00",
    ]


def test_a23_the_first_of_a_month_is_the_first_in_its_zone_and_shown_as_such() -> None:
    shown_first = preview(
        "30 * 1 * *", timezone="Europe/London", after=at("2023-03-31 12:00"), count=3
    )
    assert shown_first["fires"] == [
        "2023-03-31T23:30:00Z",
        "2023-04-01T00:30:00Z",
        "2023-04-01T01:30:00Z",
    ]
    assert shown_first["local"] == [
        "2023-04-01T00:30:00+01:00",
        "2023-04-01T01:30:00+01:00",
        "2023-04-01T02:30:00+01:00",
    ]


def test_a24_a_minute_of_each_hour_misses_none_after_a_change() -> None:
    assert fires("55 * * * *", "Europe/Belgrade", "2026-03-29 21:55", 2) == [
        "2026-03-29 22:55",
        "2026-03-29 23:55",
    ]
    month_end = fires("55 * * * *", "Europe/Belgrade", "2026-03-31 21:00", 2)
    assert month_end == ["2026-03-31 21:55", "2026-03-31 22:55"]


def test_a25_a_weekly_time_on_a_day_of_23_hours_is_not_a_week_late() -> None:
    assert fires("0 12 * * 0", "Europe/Berlin", "2022-03-24 11:00", 2) == [
        "2022-03-27 10:00",
        "2022-04-03 10:00",
    ]


def test_a28_from_inside_the_second_pass_the_next_fire_is_a_later_one() -> None:
    assert fires("1 1 * * *", NEW_YORK, "2026-11-01 06:00") == ["2026-11-02 06:01"]
    assert fires("30 1 * * *", NEW_YORK, "2026-11-01 06:10") == ["2026-11-02 06:30"]
    assert fires("15,45 1-4 * * *", NEW_YORK, "2026-11-01 06:15", 2) == [
        "2026-11-01 07:15",
        "2026-11-01 07:45",
    ]


def test_a31_two_hours_left_out_at_once_are_made_up_for_once() -> None:
    assert fires("30 2 * * *", "Antarctica/Troll", "2026-03-28 12:00", 2) == [
        "2026-03-29 01:00",
        "2026-03-30 00:30",
    ]


def test_a32_a_full_hour_of_a_half_hour_zone_is_half_past_in_utc() -> None:
    assert fires("0 * * * *", "Asia/Kolkata", "2026-01-01 00:00", 2) == [
        "2026-01-01 00:30",
        "2026-01-01 01:30",
    ]
    assert fires("30 9 * * *", "Asia/Kathmandu", "2026-01-01 00:00") == [
        "2026-01-01 03:45"
    ]
    # A bucket is an hour of UTC, whatever the zone calls it.
    assert bucket_name(at("2026-01-01 00:30")) == "chrono_timer_2026010100"
    assert bucket_name(at("2026-01-01 01:30")) == "chrono_timer_2026010101"


def test_a33_every_half_hour_keeps_its_pace_in_melbourne() -> None:
    assert fires("*/30 * * * *", "Australia/Melbourne", "2024-04-06 14:30", 6) == [
        "2024-04-06 15:00",
        "2024-04-06 15:30",
        "2024-04-06 16:00",
        "2024-04-06 16:30",
        "2024-04-06 17:00",
        "2024-04-06 17:30",
    ]


def test_a35_a_daily_time_follows_the_wall_clock_and_a_day_s_interval_does_not() -> (
    None
):
    assert fires("0 9 * * *", "America/Chicago", "2022-11-05 00:00", 2) == [
        "2022-11-05 14:00",
        "2022-11-06 15:00",
    ]
    assert fires("0 8 * * *", NEW_YORK, "2026-03-07 12:00", 2) == [
        "2026-03-07 13:00",
        "2026-03-08 12:00",
    ]
    every_24_hours = Interval(every=DAY, anchor=at("2026-03-07 13:00"))
    found = list(
        occurrences(every_24_hours, at("2026-03-07 00:00"), at("2027-03-07 00:00"))
    )
    assert len(found) == 365
    assert {moment % DAY for moment in found} == {13 * HOUR}


def test_a37_two_o_clock_on_the_night_without_one_is_one_fire() -> None:
    assert fires("0 2 * * *", NEW_YORK, "2019-03-09 12:00", 2) == [
        "2019-03-10 07:00",
        "2019-03-11 06:00",
    ]
