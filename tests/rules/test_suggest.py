"""Suggestions keep what was wanted but for the minute, and are the least loaded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.errors import BadSchedule, BadValue
from chrono.rules.instants import DAY, HOUR, MINUTE, format_instant, parse_instant
from chrono.rules.schedule import CronSchedule, occurrences, validate
from chrono.rules.suggest import (
    SPAN,
    candidates,
    least,
    parse_clock,
    start_of_look,
    weigh,
)

NOON = parse_instant("2026-11-30T12:00:30Z")


def crons(wanted, **options):
    return [one.expression for one in candidates(CronSchedule(wanted), **options)]


def test_a_minute_moves_within_its_hour_the_nearest_first():
    found = crons("30 3 * * 1-5")
    assert found[:3] == ["29 3 * * 1-5", "31 3 * * 1-5", "28 3 * * 1-5"]
    assert len(found) == len(set(found)) == 59


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("*/20 * * * *", [f"{n}-59/20 * * * *" for n in range(1, 20)]),
        ("0,30 * * * *", [f"{n},{n + 30} * * * *" for n in range(1, 30)]),
        ("1,59 8 * * *", ["0,58 8 * * *"]),
        ("0,1,58 * * * *", ["1,2,59 * * * *"]),
        ("@hourly", [f"{n} * * * *" for n in range(1, 60)]),
        ("* * * * *", []),
    ],
)
def test_several_minutes_move_together(wanted, found):
    assert crons(wanted) == found


def test_with_seconds_the_minute_is_the_second_column():
    found = candidates(CronSchedule("30 59 * * * *", "Asia/Tokyo", seconds=True))
    assert next(found) == CronSchedule("30 58 * * * *", "Asia/Tokyo", seconds=True)


def test_in_a_part_of_the_day_its_time_moves():
    found = crons("@daily", between=(60, 3 * 60))
    assert (found[0], found[-1], len(found)) == ("0 1 * * *", "0 3 * * *", 121)
    assert "30 2 * * *" not in crons("30 2 * * *", between=(60, 3 * 60))


def test_midnight_may_lie_in_it():
    found = crons("0 12 * * 5", between=(23 * 60 + 59, 1))
    assert found == ["59 23 * * 5", "0 0 * * 5", "1 0 * * 5"]


@given(
    st.sampled_from(["*/15 * * * *", "7 3 * * *", "5,50 */2 * * 1-5", "59 8-17 1 * *"])
)
def test_it_fires_as_often_as_what_was_wanted(wanted):
    month = NOON, NOON + 31 * DAY
    often = len(list(occurrences(CronSchedule(wanted), *month)))
    for one in candidates(CronSchedule(wanted)):
        validate(one)
        assert abs(len(list(occurrences(one, *month))) - often) <= 1


@pytest.mark.parametrize("wanted", ["H 3 * * *", "0,H(5-9) * * * *"])
def test_h_has_its_minute_already(wanted):
    with pytest.raises(BadValue, match="H picks a minute"):
        crons(wanted)


@pytest.mark.parametrize("wanted", ["0 * * * *", "0,1 3 * * *", "*/5 3 * * *"])
def test_only_what_fires_once_a_day_moves_over_hours(wanted):
    with pytest.raises(BadValue, match="once a day"):
        crons(wanted, between=(0, 60))


def test_a_load_is_what_is_due_in_the_minutes_of_its_fires():
    start = NOON // MINUTE * MINUTE
    due = [0] * (2 * 24 * 60)
    due[60], due[60 + 24 * 60], due[61] = 7, 2, 100
    found = weigh(CronSchedule("0 13 * * *"), start=start, due=due)
    assert (found.busiest, found.mean) == (7, 4.5)
    assert format_instant(found.first) == "2026-11-30T13:00:00Z"
    assert weigh(CronSchedule("0 0 1 1 *"), start=start, due=due) is None


def test_the_least_loaded_come_first_and_of_equal_ones_the_nearest():
    start = NOON // HOUR * HOUR
    due = [5] * 60
    due[10], due[50], due[31] = 0, 1, 1
    wanted = CronSchedule("30 * * * *")
    found = [weigh(one, start=start, due=due) for one in candidates(wanted)]
    assert [one.schedule.expression for one in least(found, count=4)] == [
        "10 * * * *",
        "31 * * * *",
        "50 * * * *",
        "29 * * * *",
    ]


@pytest.mark.parametrize(
    ("wanted", "start"),
    [
        ("0 3 * * *", "2026-11-30T12:00:00Z"),
        ("0 3 24 12 *", "2026-12-23T03:00:00Z"),
    ],
)
def test_the_look_begins_shortly_before_the_first_fire(wanted, start):
    found = start_of_look(CronSchedule(wanted), now=NOON)
    assert format_instant(found) == start
    assert list(occurrences(CronSchedule(wanted), found, found + SPAN))


def test_what_is_over_has_no_better_minute():
    with pytest.raises(BadSchedule, match="any more"):
        start_of_look(CronSchedule("0 3 * * *", ends_at=NOON), now=NOON)


@pytest.mark.parametrize(
    ("text", "minute"), [("00:00", 0), ("01:30", 90), ("23:59", 1439)]
)
def test_a_time_of_day_is_hours_and_minutes(text, minute):
    assert parse_clock(text, field="latest") == minute


@pytest.mark.parametrize("text", ["", "1:30", "24:00", "12:60", "12:30:00", "noon"])
def test_what_is_no_time_of_day_is_refused(text):
    with pytest.raises(BadValue) as refused:
        parse_clock(text, field="latest")
    assert refused.value.field == "latest"
