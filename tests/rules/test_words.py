"""Sentences for schedules: by examples, and for every expression the docs accept."""

import re
from uuid import UUID

import pytest

from chrono.rules.instants import HOUR, SECOND
from chrono.rules.policy import OVERLAP_POLICIES, from_json
from chrono.rules.schedule import (
    CronSchedule,
    FixedDelay,
    Interval,
    Once,
    resolve,
    validate,
)
from chrono.rules.words import (
    delivered,
    describe,
    failing,
    missed,
    noted,
    overlapping,
    watching,
)
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


CRON = CronSchedule("0 9 * * *")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "Of what was missed the newest runs, and stands for all."),
        ({"catchup_policy": "skip"}, "None of what was missed runs."),
        ({"catchup_policy": "run_all"}, "All that was missed runs, oldest first."),
        (
            {"catchup_policy": "deadline", "max_delay": "1h"},
            "What is at most 1 hour late runs, oldest first.",
        ),
        (
            {"catchup_policy": "skip", "max_delay": "90m"},
            "None of what was missed runs. Nothing begins more than 90 minutes late.",
        ),
    ],
)
def test_what_is_missed_is_said(fields, text):
    assert missed(CRON, from_json(fields)) == text


def test_a_fixed_delay_misses_nothing():
    told = missed(FixedDelay(delay=1_000, anchor=0), from_json({}))
    assert told.startswith("Nothing is missed")


@pytest.mark.parametrize("policy", OVERLAP_POLICIES)
def test_each_overlap_policy_is_a_sentence(policy):
    one, several = overlapping(policy, None), overlapping(policy, 3)
    assert one != several
    assert "3 runs are live" in several
    assert one.endswith(".")


def test_failures_and_reports_are_said():
    assert failing(None) == "However many runs die, it goes on."
    assert failing(1) == "It is paused after a dead run."
    assert failing(3) == "It is paused after 3 dead runs in a row."
    assert watching(from_json({})) == "Nothing."
    assert watching(from_json({"max_runtime": "1d"})) == (
        "An attempt of more than 1 day."
    )
    assert watching(
        from_json({"late_after": "5m", "max_time_since_success": "36h"})
    ) == (
        "A run that has not begun 5 minutes after it was due and 36 hours without a "
        "success."
    )


def test_what_becomes_of_a_run_whose_worker_is_lost_is_said():
    assert delivered(from_json({})).endswith("begins again.")
    once = delivered(from_json({"delivery": "at_most_once"}))
    assert once.endswith("waits for a person.")


def test_what_somebody_noted_ends_a_sentence():
    assert noted("") == "."
    assert noted("the bank is down") == ": the bank is down."
    for note in ("Down.", "Down!", "Why?", "Until the bank is back…"):
        assert noted(note) == f": {note}"
