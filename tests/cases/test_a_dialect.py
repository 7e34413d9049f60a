"""What an expression means, and what is refused rather than read as nobody meant it."""

from dataclasses import replace

import pytest

from chrono.rules import cron, dialect, words
from chrono.rules.errors import BadCron, BadSchedule, NeverFires
from chrono.rules.instants import SECOND
from chrono.rules.lint import findings
from chrono.rules.schedule import CronSchedule, latest_until, occurrences, validate
from tests.cases.fires import at, fires, following, shown


def refused(expression: str, *, seconds: bool = False) -> str:
    """Return what is said to whoever writes an expression that is refused."""
    with pytest.raises(BadSchedule) as error:
        validate(CronSchedule(expression, seconds=seconds))
    assert error.value.field == "cron"
    return error.value.message


def test_a43_a_step_of_days_begins_anew_each_month() -> None:
    assert fires("0 0 */5 * *", "UTC", "2022-02-20 00:00", 5) == [
        "2022-02-21 00:00",
        "2022-02-26 00:00",
        "2022-03-01 00:00",
        "2022-03-06 00:00",
        "2022-03-11 00:00",
    ]


def test_a44_leap_days_are_found_forwards_and_back_and_across_2100() -> None:
    assert fires("0 9 29 2 *", "UTC", "2020-02-29 00:00") == ["2020-02-29 09:00"]
    last, _ = latest_until(
        CronSchedule("15 22 29 2 *"), at("2016-03-01 00:00"), at("2024-02-29 00:00"), 9
    )
    assert shown(last) == "2020-02-29 22:15"
    assert fires("0 0 29 2 *", "UTC", "2096-03-01 00:00") == ["2104-02-29 00:00"]


@pytest.mark.parametrize(
    ("days", "why"),
    [
        ("31 2", "February has no 31st"),
        ("30 2", "February has no 30th"),
        ("31 4,6,9,11", "April, June, September and November have no 31st"),
    ],
)
def test_a45_a_date_that_does_not_exist_is_refused_with_the_reason(
    days: str, why: str
) -> None:
    with pytest.raises(NeverFires, match=why):
        validate(CronSchedule(f"0 0 {days} *"))


def test_a45_a_date_that_does_not_exist_is_harmless_beside_a_weekday() -> None:
    assert fires("0 0 31 2 1", "UTC", "2026-01-01 00:00", 4) == [
        "2026-02-02 00:00",
        "2026-02-09 00:00",
        "2026-02-16 00:00",
        "2026-02-23 00:00",
    ]


def test_a47_days_that_match_in_few_years_are_found_years_ahead() -> None:
    # No expression joins a plain weekday by AND: the search is asked itself.
    reading = dialect.read("0 13 8 1,4,7,10 3", seconds=False)
    search = cron.Compiled(replace(reading, both_days=True))
    found = search.next_wall(at("2020-09-24 00:00") // SECOND)
    assert found is not None
    assert shown(found * SECOND) == "2025-01-08 13:00"


def test_a49_two_day_fields_fire_on_either_and_the_author_is_told() -> None:
    schedule = CronSchedule("30 0 1 * 1")
    assert following(schedule, "2026-06-29 12:00", 3) == [
        "2026-07-01 00:30",
        "2026-07-06 00:30",
        "2026-07-13 00:30",
    ]
    assert "on the 1st of the month and also on Monday" in words.describe(schedule)
    codes = [one.code for one in findings(schedule, at("2026-06-29 12:00"))]
    assert "day-fields-or" in codes


def test_a52_weekdays_count_from_sunday_which_is_0_and_7() -> None:
    assert fires("30 7 * * 4", "UTC", "2026-01-01 12:00") == ["2026-01-08 07:30"]
    sundays = [f"2026-01-{day:02} 00:00" for day in (4, 11, 18)]
    assert fires("0 0 * * 7", "UTC", "2026-01-01 00:00", 3) == sundays
    assert fires("0 0 * * 0", "UTC", "2026-01-01 00:00", 3) == sundays


def test_a53_a_line_that_counts_from_another_day_is_refused_not_guessed() -> None:
    # Where seconds come first and Sunday is 1, this is Monday to Friday at nine.
    assert "`seconds: true`" in refused("0 0 9 ? * 2-6")
    assert "write `*`" in refused("0 0 9 ? * 2-6", seconds=True)


@pytest.mark.parametrize(
    ("expression", "offer"),
    [
        ("0 0 * * FRI-MON", "`FRI,SAT,SUN,MON`"),
        ("0 0 * * 5-1", "`5,6,0,1`"),
        ("0 22-2 * * *", "`22,23,0,1,2`"),
    ],
)
def test_a55_a_range_that_runs_backwards_is_refused_with_the_list_it_means(
    expression: str, offer: str
) -> None:
    message = refused(expression)
    assert offer in message
    columns = expression.split()
    place = next(n for n, text in enumerate(columns) if "-" in text)
    columns[place] = offer.strip("`")
    validate(CronSchedule(" ".join(columns)))


def test_a56_a_week_may_end_on_sunday() -> None:
    assert fires("0 8 * * mon-sun", "UTC", "2026-01-03 12:00", 2) == [
        "2026-01-04 08:00",
        "2026-01-05 08:00",
    ]
    assert fires("15 21 * * 2-7", "UTC", "2026-01-03 22:00", 3) == [
        "2026-01-04 21:15",
        "2026-01-06 21:15",
        "2026-01-07 21:15",
    ]


def test_a57_a_step_from_tuesday_does_not_reach_sunday() -> None:
    found = fires("0 0 * * 2/2", "UTC", "2026-01-02 00:00", 6)
    assert found == [f"2026-01-{day:02} 00:00" for day in (3, 6, 8, 10, 13, 15)]


def test_a61_a_start_with_a_step_goes_on_to_the_end_of_the_hour() -> None:
    assert fires("5/15 * * * *", "UTC", "2026-01-01 00:00", 4) == [
        "2026-01-01 00:05",
        "2026-01-01 00:20",
        "2026-01-01 00:35",
        "2026-01-01 00:50",
    ]


def test_a63_six_columns_are_refused_unless_seconds_are_asked_for() -> None:
    assert "the first is the second" in refused("30 0 9 * * *")
    day = list(
        occurrences(
            CronSchedule("30 0 9 * * *", seconds=True),
            at("2026-01-09 00:00"),
            at("2026-01-11 00:00"),
        )
    )
    assert [shown(moment) for moment in day] == [
        "2026-01-09 09:00:30",
        "2026-01-10 09:00:30",
    ]


def test_a65_there_is_no_month_0_and_weekday_7_is_sunday() -> None:
    assert "`1` to `12`" in refused("0 0 1 0 0")
    assert fires("0 0 * * 7", "UTC", "2026-01-01 00:00") == ["2026-01-04 00:00"]
    with pytest.raises(BadCron):
        validate(CronSchedule("0 0 1 13 *"))
