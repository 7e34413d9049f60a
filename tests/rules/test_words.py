"""Sentences for schedules: by examples, and for every expression the docs accept."""

import re
from uuid import UUID

import pytest

from chrono.rules.instants import HOUR, SECOND
from chrono.rules.schedule import (
    CronSchedule,
    FixedDelay,
    Interval,
    Once,
    resolve,
    validate,
)
from chrono.rules.words import describe
from tests.architecture.sources import ROOT

EXAMPLES = [
    ("* * * * *", "Every minute"),
    ("30 9 * * *", "At 09:30 every day"),
    ("0 9-17 * * *", "At minute 0 of every hour from 09:00 to 17:59 every day"),
    ("0,20,40 * * * *", "Every 20 minutes"),
    ("10-50/20 * * * *", "At minutes 10, 30 and 50 of every hour"),
    ("*/45 * * * *", "At minutes 0 and 45 of every hour"),
    ("1-5 * * * *", "Every minute from 1 to 5 of every hour"),
    ("*/5 9-17 * * 1-5", "Every 5 minutes from 09:00 to 17:59 on Monday to Friday"),
    ("*/10 8,9,14 * * *", "Every 10 minutes of the hours 8, 9 and 14 every day"),
    ("0 */2 * * *", "Every 2 hours, at minute 0 every day"),
    ("30 1-23/2 * * *", "Every 2 hours from 01:00 on, at minute 30 every day"),
    ("*/5 */6 * * *", "Every 5 minutes of every 6th hour every day"),
    ("0 0,6,7,19 * * *", "At 00:00, 06:00, 07:00 and 19:00 every day"),
    ("0 8 * jan,JUL mon-fri", "At 08:00 on Monday to Friday in January and July"),
    ("0 0 * 3-5 *", "At 00:00 in March to May"),
    ("15 21 * * 6-7", "At 21:15 on Saturday and Sunday"),
    ("0 8 * * mon-sun", "At 08:00 every day"),
    ("0 0 13 * 5", "At 00:00 on the 13th of the month and also on Friday"),
    (
        "0 0 1-7 * */7",
        "At 00:00 on the 1st to 7th of the month, when that is on Sunday",
    ),
    ("0 0 1,15,L * *", "At 00:00 on the 1st, 15th and last day of the month"),
    ("0 0 LW * *", "At 00:00 on the last Monday-to-Friday day of the month"),
    (
        "0 0 17W * *",
        "At 00:00 on the Monday-to-Friday day nearest to the 17th of the month",
    ),
    ("0 0 * * 5L", "At 00:00 on the last Friday of the month"),
    ("0 0 * * 5#3", "At 00:00 on the third Friday of the month"),
    ("@hourly", "At minute 0 of every hour"),
]
WITH_SECONDS = [
    ("* * * * * *", "Every second"),
    ("*/15 * * * * *", "Every 15 seconds"),
    ("0 * * * * *", "Every minute"),
    ("30 * * * * *", "At second 30 of every minute"),
    ("30 */5 * * * *", "At second 30 of every 5 minutes"),
    ("30 0 9 * * *", "At 09:00:30 every day"),
]


@pytest.mark.parametrize(("expression", "said"), EXAMPLES)
def test_five_columns_in_words(expression, said):
    assert describe(CronSchedule(expression)) == f"{said}, UTC."


@pytest.mark.parametrize(("expression", "said"), WITH_SECONDS)
def test_six_columns_in_words(expression, said):
    schedule = CronSchedule(expression, seconds=True, timezone="Europe/Berlin")
    assert describe(schedule) == f"{said}, Europe/Berlin time."


def test_intervals_and_single_instants_in_words():
    assert (
        describe(Interval(90 * SECOND, 0))
        == "Every 90 seconds, counted from 1970-01-01T00:00:00Z."
    )
    assert describe(Interval(HOUR, 0)).startswith("Every hour, counted from ")
    assert describe(Interval(1500, 0)).startswith("Every 1500 milliseconds, ")
    assert describe(Once(HOUR)) == "Once, at 1970-01-01T01:00:00Z."


def test_bounds_in_words():
    assert (
        describe(CronSchedule("30 9 * * *", starts_at=0, ends_at=HOUR))
        == "At 09:30 every day, UTC, from 1970-01-01T00:00:00Z on, "
        "until 1970-01-01T01:00:00Z."
    )
    assert (
        describe(Interval(HOUR, 0, ends_at=HOUR))
        == "Every hour, counted from 1970-01-01T00:00:00Z, until 1970-01-01T01:00:00Z."
    )


def test_a_fixed_delay_in_words():
    assert (
        describe(FixedDelay(90 * SECOND, 0))
        == "Each 90 seconds after the end of the run before."
    )
    assert describe(FixedDelay(HOUR, 0, ends_at=HOUR)) == (
        "Each hour after the end of the run before, until 1970-01-01T01:00:00Z."
    )


def accepted():
    text = (ROOT / "docs" / "cron.md").read_text()
    table = text.split("## Accepted")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| (yes|no) \|", table, re.MULTILINE)
    # An @every becomes an interval.
    return [row for row in rows if not row[0].lower().startswith("@every")]


@pytest.mark.parametrize(("expression", "seconds"), accepted())
def test_every_accepted_expression_is_one_sentence(expression, seconds):
    schedule = resolve(CronSchedule(expression, seconds=seconds == "yes"), UUID(int=0))
    validate(schedule)
    said = describe(schedule)
    assert said[0].isupper()
    assert said.endswith(", UTC.")
    assert "  " not in said
    assert not re.search(r" ,|of of|None", said)
