"""Cron fires when it should: fixtures, an oracle that scans minutes, properties."""

import csv
import random
import time
import tracemalloc
from bisect import bisect_right
from dataclasses import replace
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from croniter import croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from chrono.rules import cron, oracle
from chrono.rules.errors import BadCron, NeverFires, UnknownTimezone
from chrono.rules.instants import (
    DAY,
    HOUR,
    LATEST,
    MINUTE,
    format_instant,
    from_millis,
    parse_instant,
    to_millis,
)
from chrono.rules.schedule import (
    CronSchedule,
    next_after,
    occurrences,
    schedule_to_json,
    validate,
)
from tests.support import clock_changes

FIXTURES = Path(__file__).with_name("fixtures") / "cron-fixtures.csv"

ZONES = [
    "Africa/Cairo",  # forward at midnight
    "Africa/Casablanca",  # four changes a year, by the moon
    "America/New_York",
    "America/Santiago",  # back at midnight
    "America/Sao_Paulo",  # abolished in 2019
    "America/St_Johns",  # half-hour zone
    "Antarctica/Troll",  # two hours at once
    "Asia/Beirut",
    "Australia/Lord_Howe",  # half an hour at once
    "Europe/Berlin",
    "Europe/Dublin",  # winter is the exception
    "Pacific/Apia",  # lost a day in 2011
]
YEARS = [1995, 2011, 2018, 2026, 2044, 2060]
FROM_2026 = parse_instant("2026-01-01T00:00:00Z")


def fixture_rows():
    with FIXTURES.open() as file:
        return [pytest.param(row, id=row["id"]) for row in csv.DictReader(file)]


def instant(text):
    return parse_instant(text.replace(" ", "T").removesuffix("Z") + "Z")


def following(schedule, moment, count):
    fires = []
    while len(fires) < count:
        moment = next_after(schedule, moment)
        fires.append(moment)
    return fires


@pytest.mark.parametrize("row", fixture_rows())
def test_the_fixtures_of_the_field_are_right(row):
    schedule = CronSchedule(row["expression"], row["zone"])
    validate(schedule)
    expected = [instant(text) for text in row["expected_next_utc"].split(" | ")]
    found = following(schedule, instant(row["base_utc"]), len(expected))
    assert [format_instant(fire) for fire in found] == [
        format_instant(fire) for fire in expected
    ]


# fmt: off
MINUTES = [
    "*", "*/15", "*/5", "0", "30", "0,30", "15,45", "10-20", "5/20", "*/7", "7", "52",
]
HOURS = [
    "*", "*/2", "0-23", "0-5", "1-3", "0,2", "23,0", "0/3", "*/6", "0", "1", "2", "3",
    "13",
]
DAYS = [
    "*", "*", "*", "*", "*", "*", "*/2", "1-15", "1,15,29", "25-31",
]
MONTHS = [
    "*", "*", "*", "*", "*", "3,10", "*/2", "1-6",
]
WEEKDAYS = [
    "*", "*", "*", "*", "*", "*", "0", "1-5", "6-7", "*/2", "7",
]
# fmt: on


def random_expression(draw):
    """Return five columns, weighted towards the small hours of clock changes."""
    return " ".join(map(draw.choice, (MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS)))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_fire_around_clock_changes_agrees_with_the_minute_scan():
    draw = random.Random(20261129)
    compared = differences = 0
    zones_seen = set()
    for zone in ZONES:
        for year in YEARS:
            for change in clock_changes.changes(zone, year):
                first = to_millis(change) - 30 * HOUR
                last = first + 60 * HOUR - MINUTE
                zones_seen.add(zone)
                for _ in range(28):
                    expression = random_expression(draw)
                    policy = {
                        "dst_gap": draw.choice(["shift", "shift", "skip"]),
                        "dst_fold": draw.choice(["first", "first", "second", "both"]),
                    }
                    schedule = CronSchedule(expression, zone, **policy)
                    fields = schedule_to_json(schedule)
                    expected = list(oracle.fires(fields, first - 1, last))
                    found = list(occurrences(schedule, first - 1, last))
                    compared += len(expected)
                    differences += len(set(expected) ^ set(found))
                    assert found == expected, (schedule, year)
                    # A start anywhere, also within the second pass, finds the rest.
                    base = draw.randrange(first, last)
                    later = expected[bisect_right(expected, base) :]
                    found_one = next_after(schedule, base)
                    assert found_one == later[0] if later else found_one > last
    print(
        f"\n{compared} fires compared in {len(zones_seen)} zones, {differences} differ"
    )
    assert compared >= 200_000
    assert len(zones_seen) == 12


bases = st.integers(
    min_value=FROM_2026 - 5 * 366 * DAY, max_value=FROM_2026 + 30 * 366 * DAY
)
expressions = st.integers(min_value=0, max_value=2**32).map(
    lambda seed: random_expression(random.Random(seed))
)
schedules = st.builds(
    CronSchedule,
    expressions,
    st.sampled_from(ZONES),
    dst_gap=st.sampled_from(["shift", "skip"]),
    dst_fold=st.sampled_from(["first", "second", "both"]),
)


@given(schedules, bases)
def test_next_is_later_and_the_first(schedule, base):
    found = next_after(schedule, base)
    assert found > base
    assert found % MINUTE == 0
    # Nothing lies between: asked from anywhere before it, the answer is the same.
    assert next_after(schedule, found - 1) == found
    assert (
        next_after(schedule, (base + found) // 2) == found
        or (base + found) // 2 == found
    )


def walked(schedule, after, until):
    """Return the fires in (after, until], found one from the other."""
    fires = []
    while (after := next_after(schedule, after)) is not None and after <= until:
        fires.append(after)
    return fires


around_changes = st.builds(
    lambda change, distance: to_millis(change) + distance,
    st.sampled_from(
        [change for zone in ZONES for change in clock_changes.changes(zone, 2026)]
    ),
    st.integers(-40 * HOUR, 10 * HOUR),
)
by_the_second = st.builds(
    lambda schedule, second: replace(
        schedule, expression=f"{second} {schedule.expression}", seconds=True
    ),
    schedules,
    st.sampled_from(["0", "*/20", "59", "5,7"]),
)


@settings(max_examples=300)
@given(
    st.one_of(schedules, by_the_second),
    st.one_of(bases, around_changes),
    st.integers(0, 2 * DAY),
)
def test_all_fires_of_a_stretch_are_those_found_one_by_one(schedule, after, length):
    until = after + length
    assert list(occurrences(schedule, after, until)) == walked(schedule, after, until)


@pytest.mark.parametrize("expression", ["0 0 29 2 *", "0 12 31 * *", "0 0 * * 5#5"])
def test_a_long_stretch_with_hardly_any_fires_is_walked_to_its_end(expression):
    schedule = CronSchedule(expression, "Europe/Berlin")
    until = FROM_2026 + 60 * 366 * DAY
    found = list(occurrences(schedule, FROM_2026, until))
    assert found == walked(schedule, FROM_2026, until)
    assert found


def test_what_never_fires_is_given_up_after_fifty_years():
    assert list(occurrences(CronSchedule("0 0 30 2 *"), 0, LATEST - 1)) == []


@given(st.integers(0, 59), st.integers(0, 23), st.sampled_from(ZONES), bases)
def test_a_daily_fixed_time_fires_once_a_day(minute, hour, zone, base):
    schedule = CronSchedule(f"{minute} {hour} * * *", zone)
    fires = following(schedule, base, 400)
    for earlier, later in pairwise(fires):
        lost_day = zone == "Pacific/Apia" and later - earlier == 48 * HOUR
        assert 21 * HOUR < later - earlier < 27 * HOUR or lost_day


@given(st.sampled_from([1, 5, 10, 15, 30]), st.sampled_from(ZONES), bases)
def test_a_wildcard_keeps_its_pace_through_clock_changes(step, zone, base):
    fires = following(CronSchedule(f"*/{step} * * * *", zone), base, 500)
    assert {later - earlier for earlier, later in pairwise(fires)} == {step * MINUTE}


def test_a_long_walk_does_not_drift():
    fires = following(CronSchedule("30 2 * * *", "America/New_York"), FROM_2026, 10_000)
    schedule = CronSchedule("30 2 * * *", "America/New_York")
    assert next_after(schedule, fires[-2]) == fires[-1]
    assert next_after(schedule, fires[-1] - 12 * HOUR) == fires[-1]
    assert len(set(fires)) == 10_000


plain_columns = st.tuples(
    st.sampled_from(["0", "*/20", "5-50/15", "59"]),
    st.sampled_from(["0", "*/7", "8-18/3", "23"]),
    st.sampled_from(["*", "*/5", "1", "13", "29-31", "10-20/4"]),
    st.sampled_from(["*", "2", "*/5", "jan-mar", "4,6,9,11"]),
    st.sampled_from(["*", "1", "mon-fri", "0,6", "2-4", "*/3"]),
)


@given(plain_columns, bases)
def test_in_utc_it_agrees_with_croniter(columns, base):
    expression = " ".join(columns)
    try:
        validate(CronSchedule(expression))
    except NeverFires:
        return
    start = from_millis(base)
    # implement_cron_bug is croniter's name for joining by AND after a leading `*`.
    walk = croniter(expression, start, implement_cron_bug=True)
    expected = [int(walk.get_next(float)) * 1000 for _ in range(5)]
    assert following(CronSchedule(expression), base, 5) == expected


def days_of(expression, year):
    schedule = CronSchedule(f"0 0 {expression}")
    start = parse_instant(f"{year - 1}-12-31T23:59:59Z")
    end = parse_instant(f"{year}-12-31T23:59:59Z")
    return [from_millis(fire).date() for fire in occurrences(schedule, start, end)]


def all_days(year):
    day = date(year, 1, 1)
    while day.year == year:
        yield day
        day += timedelta(days=1)


def is_last(day):
    return (day + timedelta(days=1)).day == 1


def last_workday(day):
    month = [d for d in all_days(day.year) if d.month == day.month and d.weekday() < 5]
    return day == month[-1]


def nearest(day, wanted):
    month = [d for d in all_days(day.year) if d.month == day.month]
    if wanted > len(month):
        return False
    work = [d for d in month if d.weekday() < 5]
    # Ties cannot happen: a Saturday is nearer to Friday, a Sunday nearer to Monday.
    return day == min(work, key=lambda d: abs(d.day - wanted))


SPECIAL = {
    "L * *": is_last,
    "LW * *": last_workday,
    "15W * *": lambda day: nearest(day, 15),
    "1W * *": lambda day: nearest(day, 1),
    "31W * *": lambda day: nearest(day, 31),
    "1,15W,L * *": lambda day: day.day == 1 or nearest(day, 15) or is_last(day),
    "* * 5L": lambda day: (
        day.isoweekday() == 5 and (day + timedelta(days=7)).month != day.month
    ),
    "* * 0L": lambda day: (
        day.isoweekday() == 7 and (day + timedelta(days=7)).month != day.month
    ),
    "* * 5#3": lambda day: day.isoweekday() == 5 and 15 <= day.day <= 21,
    "* * mon#1": lambda day: day.isoweekday() == 1 and day.day <= 7,
    "* * 3#5": lambda day: day.isoweekday() == 3 and day.day >= 29,
    "* * 7#2": lambda day: day.isoweekday() == 7 and 8 <= day.day <= 14,
    "* * 1#1,3": lambda day: (
        day.isoweekday() == 3 or (day.isoweekday() == 1 and day.day <= 7)
    ),
    "L * 1": lambda day: is_last(day) or day.isoweekday() == 1,
}


@pytest.mark.parametrize("expression", list(SPECIAL))
@pytest.mark.parametrize("year", [2024, 2026, 2027])
def test_special_days_fall_where_the_calendar_says(expression, year):
    expected = [day for day in all_days(year) if SPECIAL[expression](day)]
    assert days_of(expression, year) == expected


def test_a48_a_29_february_on_a_sunday_is_found_across_a_century_without_one():
    # Joined by AND: every 28 years, and 40 across 2100, which is no leap year.
    fires = following(CronSchedule("0 0 29 2 */7"), FROM_2026, 4)
    assert [format_instant(fire)[:10] for fire in fires] == [
        "2032-02-29",
        "2060-02-29",
        "2088-02-29",
        "2128-02-29",
    ]


def test_a48_day_fields_without_a_star_are_joined_by_or():
    days = days_of("29 2 0", 2026)
    assert [day.day for day in days] == [1, 8, 15, 22]
    assert all(day.isoweekday() == 7 for day in days)
    assert [day.day for day in days_of("29 2 0", 2028)] == [6, 13, 20, 27, 29]


def test_a51_day_fields_are_joined_by_and_when_either_begins_with_a_star():
    days = days_of("*/2 * 3", 2026)
    assert len(days) == 26
    assert all(day.isoweekday() == 3 and day.day % 2 for day in days)
    assert days[:4] == [
        date(2026, m, d) for m, d in [(1, 7), (1, 21), (2, 11), (2, 25)]
    ]
    sundays = days_of("1-7 * */7", 2026)
    assert sundays[:3] == [date(2026, m, d) for m, d in [(1, 4), (2, 1), (3, 1)]]
    assert len(sundays) == 12


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("0 0 31 2 *", "February has no 31st"),
        ("0 0 30 2 *", "February has no 30th"),
        ("0 0 31 4,6,9,11 *", "April, June, September and November have no 31st"),
        ("0 0 31W 2 *", "February"),
    ],
)
def test_what_never_fires_says_why(expression, reason):
    with pytest.raises(NeverFires, match=reason):
        validate(CronSchedule(expression))


def test_a_time_that_only_a_gap_holds_never_fires_when_gaps_are_skipped():
    schedule = CronSchedule("30 2 8-14 3 */7", "America/New_York", dst_gap="skip")
    with pytest.raises(NeverFires, match="clock change"):
        validate(schedule)
    validate(CronSchedule("30 2 8-14 3 */7", "America/New_York"))


def test_a_skipped_gap_leaves_the_day_out():
    schedule = CronSchedule("30 2 * * *", "America/New_York", dst_gap="skip")
    assert next_after(schedule, instant("2026-03-08 05:00")) == instant(
        "2026-03-09 06:30"
    )


def test_both_passes_fire_when_asked_for():
    base = instant("2026-11-01 04:00")
    first, second = instant("2026-11-01 05:30"), instant("2026-11-01 06:30")
    zone = "America/New_York"
    fires = {
        fold: following(CronSchedule("30 1 * * *", zone, dst_fold=fold), base, 2)
        for fold in ("first", "second", "both")
    }
    assert fires["first"][0] == first
    assert fires["second"][0] == second
    assert fires["both"] == [first, second]


def test_a63_seconds_come_first():
    schedule = CronSchedule("*/20 0 9 * * *", seconds=True)
    fires = following(schedule, FROM_2026, 4)
    assert [format_instant(fire)[11:] for fire in fires] == [
        "09:00:00Z",
        "09:00:20Z",
        "09:00:40Z",
        "09:00:00Z",
    ]


def test_a_zone_whose_offset_has_seconds_is_right_to_the_second():
    # Liberia was 44 min 30 s behind UTC until 7 January 1972.
    schedule = CronSchedule("0 12 * * *", "Africa/Monrovia")
    found = next_after(schedule, parse_instant("1971-06-01T00:00:00Z"))
    assert format_instant(found) == "1971-06-01T12:44:30Z"


@pytest.mark.parametrize(
    "zone", ["Europe/Berln", "", "../../etc/passwd", "zone.tab", "EST6"]
)
def test_an_unknown_zone_is_refused(zone):
    with pytest.raises(UnknownTimezone):
        validate(CronSchedule("0 0 * * *", zone))


def test_a_near_zone_name_is_offered():
    with pytest.raises(UnknownTimezone, match="Europe/Berlin"):
        validate(CronSchedule("0 0 * * *", "Europe/Berln"))


def test_a36_whether_it_is_valid_does_not_depend_on_the_clock():
    # Asked of every hour of a year: always an answer, never an error.
    schedule = CronSchedule("0 2 * * *", "America/New_York")
    for hour in range(365 * 24):
        assert next_after(schedule, FROM_2026 + hour * HOUR) is not None


@pytest.mark.parametrize(
    "text",
    [
        "0-99999999/1 * * * *",
        "*/0 * * * *",
        "1-5/0 * * * *",
        "008 * * * *",
        "1," * 200,
        "* " * 100_000,
    ],
)
def test_a59_a60_a_hostile_expression_is_refused_at_once_and_for_nothing(text):
    tracemalloc.start()
    try:
        start = time.process_time()
        with pytest.raises(BadCron):
            validate(CronSchedule(text))
        assert time.process_time() - start < 0.005
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_100_000_jobs_that_share_50_expressions_cost_less_than_100_ms():
    draw = random.Random(7)
    texts = [f"{draw.randrange(60)} {draw.randrange(24)} * * 1-5" for _ in range(50)]
    jobs = [
        CronSchedule(texts[number % 50], "America/New_York")
        for number in range(100_000)
    ]
    moment = FROM_2026 + 12_345 * MINUTE
    start = time.process_time()
    found = [next_after(job, moment) for job in jobs]
    spent = time.process_time() - start
    print(f"\n100,000 jobs, 50 expressions: {spent * 1000:.0f} ms")
    assert len(found) == 100_000
    assert spent < 0.1


def test_every_is_an_interval():
    assert cron.every("@every 90s") == 90_000
    assert cron.every("0 0 * * *") is None
    with pytest.raises(BadCron, match="@every 90s"):
        cron.every("@every soon")
