"""Schedules: strictly later, the same forwards and back, the same through JSON."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules import schedule as schedule_module
from chrono.rules.errors import (
    BadDuration,
    BadInstant,
    BadSchedule,
    BadValue,
    StuckSchedule,
    UnknownTimezone,
)
from chrono.rules.instants import DAY, HOUR, LATEST, MINUTE, parse_instant
from chrono.rules.schedule import (
    LONGEST_INTERVAL,
    CronSchedule,
    FixedDelay,
    Interval,
    Once,
    latest_until,
    next_after,
    occurrences,
    parse,
    period,
    resolve,
    schedule_from_json,
    schedule_to_json,
    validate,
)

NEW_YEAR = parse_instant("2026-01-01T00:00:00Z")

instants = st.integers(NEW_YEAR, NEW_YEAR + 3 * 366 * DAY)
bounds = st.one_of(st.none(), instants)
crons = st.builds(
    CronSchedule,
    st.sampled_from(
        ["*/7 * * * *", "30 1 * * *", "30 2 * * *", "0 9 * * 1-5", "0 0 L * *"]
    ),
    st.sampled_from(["UTC", "America/New_York", "Australia/Lord_Howe"]),
    dst_gap=st.sampled_from(["shift", "skip"]),
    dst_fold=st.sampled_from(["first", "second", "both"]),
    starts_at=bounds,
    ends_at=bounds,
)
intervals = st.builds(Interval, st.integers(1_000, 40 * DAY), instants, bounds)
delays = st.builds(FixedDelay, st.integers(1_000, 40 * DAY), instants, bounds)
onces = st.builds(Once, instants)
schedules = st.one_of(crons, intervals, delays, onces)


@given(schedules, instants)
def test_next_is_strictly_later(schedule, moment):
    found = next_after(schedule, moment)
    assert found is None or found > moment


@given(schedules, instants, st.integers(0, 3 * DAY), st.integers(1, 50))
def test_latest_until_agrees_with_walking_there(schedule, after, length, limit):
    until = after + length
    walked = list(occurrences(schedule, after, until))
    last, count = latest_until(schedule, after, until, limit)
    assert last == (walked[-1] if walked else None)
    assert count == min(len(walked), limit)


@given(intervals, instants)
def test_an_interval_counts_from_its_anchor(schedule, moment):
    found = next_after(replace(schedule, ends_at=None), moment)
    assert found >= schedule.anchor
    assert (found - schedule.anchor) % schedule.every == 0
    assert found == schedule.anchor or found - schedule.every <= moment


@given(st.one_of(crons, intervals), instants, st.integers(0, 3 * DAY))
def test_bounds_only_leave_out_what_lies_beyond_them(schedule, after, length):
    free = replace(schedule, ends_at=None)
    low = 0
    if isinstance(schedule, CronSchedule):
        free = replace(free, starts_at=None)
        low = schedule.starts_at or 0
    high = LATEST if schedule.ends_at is None else schedule.ends_at
    assert list(occurrences(schedule, after, after + length)) == [
        moment
        for moment in occurrences(free, after, after + length)
        if low <= moment <= high
    ]


@given(delays, instants)
def test_a_fixed_delay_counts_from_an_end(schedule, end):
    free = replace(schedule, ends_at=None)
    expected = schedule.anchor if end < schedule.anchor else end + schedule.delay
    assert next_after(free, end) == expected
    over = schedule.ends_at is not None and expected > schedule.ends_at
    assert next_after(schedule, end) == (None if over else expected)


def test_both_bounds_belong_to_the_schedule():
    noon = NEW_YEAR + 12 * HOUR
    hourly = CronSchedule("0 * * * *", starts_at=noon, ends_at=noon + 2 * HOUR)
    assert list(occurrences(hourly, 0, LATEST)) == [noon, noon + HOUR, noon + 2 * HOUR]
    assert next_after(hourly, noon + 2 * HOUR) is None
    assert next_after(Interval(HOUR, noon, ends_at=noon), noon - 1) == noon
    assert next_after(Interval(HOUR, noon, ends_at=noon), noon) is None


def test_of_a_fixed_delay_only_the_first_can_be_told():
    schedule = FixedDelay(delay=MINUTE, anchor=NEW_YEAR)
    day = NEW_YEAR + DAY
    assert list(occurrences(schedule, 0, day)) == [NEW_YEAR]
    assert list(occurrences(schedule, NEW_YEAR, day)) == [NEW_YEAR + MINUTE]
    assert latest_until(schedule, NEW_YEAR, day, 10) == (NEW_YEAR + MINUTE, 1)
    assert latest_until(schedule, NEW_YEAR, NEW_YEAR + MINUTE - 1, 10) == (None, 0)


def test_the_last_fire_of_a_month_of_seconds_is_found_by_halving():
    schedule = CronSchedule("* * * * 1 *", seconds=True)
    until = NEW_YEAR + 300 * DAY
    last, count = latest_until(schedule, NEW_YEAR, until, 10)
    assert (last, count) == (parse_instant("2026-01-31T23:59:59Z"), 10)


def test_the_anchor_is_the_first_fire():
    schedule = Interval(every=MINUTE, anchor=NEW_YEAR)
    assert next_after(schedule, NEW_YEAR - 10 * DAY) == NEW_YEAR
    assert next_after(schedule, NEW_YEAR - 1) == NEW_YEAR
    assert next_after(schedule, NEW_YEAR) == NEW_YEAR + MINUTE


def test_a_year_of_missed_seconds_is_counted_without_walking():
    schedule = Interval(every=1_000, anchor=NEW_YEAR)
    year = 365 * DAY
    last, count = latest_until(schedule, NEW_YEAR, NEW_YEAR + year, 10**9)
    assert (last, count) == (NEW_YEAR + year, year // 1_000)


def test_the_last_fire_is_found_behind_the_limit():
    schedule = CronSchedule("* * * * * *", seconds=True)
    last, count = latest_until(schedule, NEW_YEAR, NEW_YEAR + 7 * DAY + 1, 100)
    assert (last, count) == (NEW_YEAR + 7 * DAY, 100)
    yearly = CronSchedule("0 0 1 3 *")
    until = NEW_YEAR + 40 * 366 * DAY
    assert latest_until(yearly, NEW_YEAR, until, 3) == (
        parse_instant("2065-03-01T00:00:00Z"),
        3,
    )


def test_nothing_is_counted_with_a_limit_of_nothing():
    assert latest_until(Once(NEW_YEAR), NEW_YEAR - 1, NEW_YEAR, 0) == (NEW_YEAR, 0)


def test_once_fires_once():
    schedule = Once(NEW_YEAR)
    assert next_after(schedule, NEW_YEAR - 1) == NEW_YEAR
    assert next_after(schedule, NEW_YEAR) is None
    assert list(occurrences(schedule, 0, NEW_YEAR + DAY)) == [NEW_YEAR]
    assert latest_until(schedule, NEW_YEAR, NEW_YEAR + DAY, 5) == (None, 0)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (CronSchedule("*/5 * * * *"), 5 * MINUTE),
        (CronSchedule("0 9,10 * * *"), HOUR),
        (CronSchedule("0 9 * * 1-5"), DAY),
        (CronSchedule("0 2 * * *", "America/New_York"), DAY),
        (CronSchedule("0 0 1 * *"), 28 * DAY),
        (CronSchedule("0 0 29 2 *"), 1461 * DAY),
        (CronSchedule("*/10 * * * * *", seconds=True), 10_000),
        (CronSchedule("0 9 * * *", starts_at=0, ends_at=0), DAY),
        (Interval(every=90_000, anchor=0), 90_000),
        (FixedDelay(delay=90_000, anchor=0), 90_000),
        (Once(NEW_YEAR), None),
    ],
)
def test_the_period_is_the_smallest_distance(schedule, expected):
    assert period(schedule) == expected


@given(schedules)
def test_json_gives_the_schedule_back(schedule):
    assert schedule_from_json(schedule_to_json(schedule)) == schedule


def test_the_fields_of_json_are_those_of_a_job():
    assert schedule_to_json(CronSchedule("0 9 * * *", "Europe/Berlin")) == {
        "cron": "0 9 * * *",
        "timezone": "Europe/Berlin",
        "seconds": False,
        "dst_gap": "shift",
        "dst_fold": "first",
    }
    assert schedule_to_json(Interval(every=90_000, anchor=NEW_YEAR)) == {
        "interval": "90s",
        "starts_at": "2026-01-01T00:00:00Z",
    }
    bounded = CronSchedule("0 9 * * *", starts_at=NEW_YEAR, ends_at=NEW_YEAR + DAY)
    assert schedule_to_json(bounded) == {
        "cron": "0 9 * * *",
        "timezone": "UTC",
        "seconds": False,
        "dst_gap": "shift",
        "dst_fold": "first",
        "starts_at": "2026-01-01T00:00:00Z",
        "ends_at": "2026-01-02T00:00:00Z",
    }
    assert schedule_to_json(FixedDelay(90_000, NEW_YEAR, NEW_YEAR + DAY)) == {
        "fixed_delay": "90s",
        "starts_at": "2026-01-01T00:00:00Z",
        "ends_at": "2026-01-02T00:00:00Z",
    }
    assert schedule_to_json(Once(NEW_YEAR)) == {"run_at": "2026-01-01T00:00:00Z"}


def test_every_becomes_an_interval():
    expected = Interval(every=90_000, anchor=NEW_YEAR)
    assert parse("@every 90s", anchor=NEW_YEAR) == expected
    assert schedule_from_json({"cron": "@every 90s"}, anchor=NEW_YEAR) == expected
    given_start = {"cron": "@every 90s", "starts_at": "2026-01-01T00:00:00Z"}
    assert schedule_from_json(given_start, anchor=5) == expected


def test_a_delay_counts_from_its_anchor_where_no_start_is_given():
    given_delay = {"fixed_delay": "5m", "ends_at": "2026-01-02T00:00:00Z"}
    assert schedule_from_json(given_delay, anchor=7) == FixedDelay(
        delay=5 * MINUTE, anchor=7, ends_at=NEW_YEAR + DAY
    )


@given(st.uuids())
def test_h_is_resolved_once_the_job_is_known(job_id):
    typed = schedule_from_json({"cron": "H H * * *"})
    assert typed.expression == "H H * * *"
    known = schedule_from_json({"cron": "H H * * *"}, job_id=job_id)
    assert known == resolve(typed, job_id)
    validate(known)
    assert resolve(known, job_id) == known


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({}, "cron"),
        ({"cron": "0 0 * * *", "interval": "5m"}, "interval"),
        ({"cron": "0 0 * * *", "run_at": "2026-01-01T00:00:00Z"}, "run_at"),
        ({"cron": 5}, "cron"),
        ({"cron": "0 0 * * *", "timezone": None}, "timezone"),
        ({"cron": "0 0 * * *", "seconds": 1}, "seconds"),
        ({"interval": "5 minutes", "starts_at": "2026-01-01T00:00:00Z"}, "interval"),
        ({"interval": "5m"}, "starts_at"),
        ({"interval": "5m", "starts_at": "today"}, "starts_at"),
        ({"interval": "5m", "fixed_delay": "5m"}, "fixed_delay"),
        ({"fixed_delay": 5, "starts_at": "2026-01-01T00:00:00Z"}, "fixed_delay"),
        ({"fixed_delay": "soon", "starts_at": "2026-01-01T00:00:00Z"}, "fixed_delay"),
        ({"fixed_delay": "5m"}, "starts_at"),
        ({"cron": "0 0 * * *", "starts_at": 5}, "starts_at"),
        ({"cron": "0 0 * * *", "ends_at": "tomorrow"}, "ends_at"),
        ({"run_at": "2026-01-01T00:00:00"}, "run_at"),
    ],
)
def test_a_wrong_field_is_named(data, field):
    with pytest.raises((BadSchedule, BadDuration, BadInstant)) as refused:
        schedule_from_json(data)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("schedule", "error", "field"),
    [
        (CronSchedule("0 0 * * *", dst_gap="jump"), BadSchedule, "dst_gap"),
        (CronSchedule("0 0 * * *", dst_fold="third"), BadSchedule, "dst_fold"),
        (CronSchedule("0 0 * * *", "Nowhere"), UnknownTimezone, "timezone"),
        (Interval(every=999, anchor=0), BadSchedule, "interval"),
        (Interval(every=LONGEST_INTERVAL + 1, anchor=0), BadSchedule, "interval"),
        (Interval(every=1_000, anchor=-1), BadInstant, "starts_at"),
        (Interval(every=1_000, anchor=5, ends_at=4), BadSchedule, "ends_at"),
        (Interval(every=1_000, anchor=5, ends_at=LATEST), BadInstant, "ends_at"),
        (FixedDelay(delay=999, anchor=0), BadSchedule, "fixed_delay"),
        (FixedDelay(delay=1_000, anchor=-1), BadInstant, "starts_at"),
        (FixedDelay(delay=1_000, anchor=5, ends_at=4), BadSchedule, "ends_at"),
        (
            CronSchedule("0 0 * * *", starts_at=5, ends_at=4),
            BadSchedule,
            "ends_at",
        ),
        (CronSchedule("0 0 * * *", ends_at=-1), BadInstant, "ends_at"),
        (CronSchedule("0 0 * * *", starts_at=-1), BadInstant, "starts_at"),
        (Once(-1), BadInstant, "run_at"),
    ],
)
def test_what_cannot_be_saved_is_refused(schedule, error, field):
    with pytest.raises(error) as refused:
        validate(schedule)
    assert isinstance(refused.value, BadValue)
    assert refused.value.field == field


def test_an_end_without_a_fire_before_it_can_be_saved():
    validate(Interval(every=DAY, anchor=NEW_YEAR, ends_at=NEW_YEAR))
    validate(CronSchedule("0 0 1 1 *", starts_at=NEW_YEAR + 1, ends_at=NEW_YEAR + 2))


def test_the_memory_of_next_after_is_bounded(monkeypatch):
    monkeypatch.setattr("chrono.rules.schedule._REMEMBERED", 10)
    schedule = CronSchedule("0 0 * * *")
    for day in range(50):
        assert next_after(schedule, NEW_YEAR + day * DAY) == NEW_YEAR + (day + 1) * DAY
    assert len(schedule_module._remembered) <= 10


def test_c16_a_next_fire_that_is_not_later_breaks_the_job_and_not_the_loop(monkeypatch):
    monkeypatch.setattr(
        "chrono.rules.cron.next_fire", lambda expression, moment, **zone: moment
    )
    monkeypatch.setattr(
        "chrono.rules.cron.fires", lambda expression, moment, until, **zone: [moment]
    )
    schedule = CronSchedule("59 23 31 12 *")
    with pytest.raises(StuckSchedule):
        next_after(schedule, NEW_YEAR)
    with pytest.raises(StuckSchedule):
        list(occurrences(schedule, NEW_YEAR, NEW_YEAR + DAY))


@given(schedules, st.integers(0, 2 * 366 * DAY))
def test_at_the_end_of_time_there_is_a_next_fire_or_none(schedule, before):
    moment = LATEST - 1 - before
    found = next_after(schedule, moment)
    assert found is None or moment < found < LATEST
