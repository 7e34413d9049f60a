"""Each surprise has its stable code, and what is plain has none."""

import re
from pathlib import Path

import pytest

from chrono.rules.instants import parse_instant
from chrono.rules.lint import findings, of_delivery
from chrono.rules.preview import preview
from chrono.rules.schedule import CronSchedule, FixedDelay

AFTER = "2026-01-01T00:00:00Z"
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "cron.md"


def codes(expression, **options):
    answer = preview(expression, after=parse_instant(AFTER), **options)
    return [warning["code"] for warning in answer["warnings"]]


@pytest.mark.parametrize(
    ("expression", "options", "expected"),
    [
        ("7 9 * * *", {}, []),
        ("*/15 * * * *", {}, []),
        ("*/45 * * * *", {}, ["uneven-step"]),
        ("7 */5 * * *", {}, ["uneven-step"]),
        ("7 9 */2 * *", {}, ["uneven-step"]),
        ("7 9-17/3 * * *", {}, []),
        ("7 9 1,15 * 5", {}, ["day-fields-or"]),
        ("7 9 1-7 * */7", {}, []),
        ("7 9 31 * *", {}, ["skipped-months"]),
        ("7 9 29 * *", {}, ["skipped-months"]),
        ("7 9 * * 5#5", {}, ["skipped-months"]),
        ("7 9 L * *", {}, []),
        ("7 9 29 2 *", {}, ["leap-day-only"]),
        ("30 2 * * *", {"timezone": "America/New_York"}, ["dst-gap"]),
        ("30 1 * * *", {"timezone": "America/New_York"}, ["dst-fold"]),
        ("* 1-2 * * *", {"timezone": "America/New_York"}, ["dst-gap", "dst-fold"]),
        ("* * * * *", {"timezone": "America/New_York"}, []),
        ("30 2 1 1 *", {"timezone": "America/New_York"}, []),
        ("30 7 9 * * *", {"seconds": True}, ["six-field-seconds"]),
        ("0 9 * * *", {}, ["top-of-hour"]),
        ("@every 90s", {}, []),
        ("@every 25h", {}, []),
        ("@every 24h", {}, ["interval-drifts"]),
        ("@every 7d", {}, ["interval-drifts"]),
        ("H * * * *", {}, []),
    ],
)
def test_surprises_have_stable_codes(expression, options, expected):
    assert codes(expression, **options) == expected


def test_a_missing_time_is_named_with_what_happens_instead():
    def text(**options):
        answer = preview(
            "30 2 * * *",
            timezone="America/New_York",
            after=parse_instant(AFTER),
            **options,
        )
        return answer["warnings"][0]["text"]

    assert text().startswith("2026-03-08 02:30 in America/New_York does not exist")
    assert "fires once at 03:00" in text()
    assert "left out" in text(dst_gap="skip")


def test_an_interval_of_a_day_is_told_what_keeps_the_time_of_day():
    after = parse_instant("2026-03-07T13:00:00Z")
    daily = preview("@every 24h", after=after, count=2)
    assert daily["fires"] == ["2026-03-08T13:00:00Z", "2026-03-09T13:00:00Z"]
    assert "`0 8 * * *` and a timezone" in daily["warnings"][0]["text"]
    kept = preview("0 8 * * *", after=after, timezone="America/New_York", count=1)
    assert kept["fires"] == ["2026-03-08T12:00:00Z"]


def test_a_clock_change_is_told_only_between_the_start_and_the_end():
    after = parse_instant("2026-01-01T00:00:00Z")

    def codes(**bounds):
        schedule = CronSchedule("30 2 * * *", timezone="America/New_York", **bounds)
        return [one.code for one in findings(schedule, after)]

    assert codes() == ["dst-gap"]
    assert codes(ends_at=parse_instant("2026-03-08T06:59:59Z")) == []
    assert codes(ends_at=parse_instant("2026-03-08T07:00:00Z")) == ["dst-gap"]
    assert codes(starts_at=parse_instant("2026-03-09T00:00:00Z")) == ["dst-gap"]
    [told] = findings(
        CronSchedule(
            "30 2 * * *",
            timezone="America/New_York",
            starts_at=parse_instant("2026-03-09T00:00:00Z"),
        ),
        after,
    )
    assert told.text.startswith("2027-03-14")


def test_of_a_fixed_delay_it_is_told_that_only_one_run_can_be():
    [told] = findings(FixedDelay(delay=60_000, anchor=0), 0)
    assert told.code == "fixed-delay"


def test_the_document_lists_every_code():
    source = Path(preview.__code__.co_filename).with_name("lint.py").read_text()
    used = set(re.findall(r'"((?:[a-z]+-)+[a-z]+)"', source))
    section = DOCUMENT.read_text().split("## Surprises")[1]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)) == used


def test_payroll_is_proposed_to_run_at_most_once():
    [found] = of_delivery(["eu", "payroll"], "at_least_once")
    assert found.code == "payroll-delivery"
    assert "at_most_once" in found.text
    assert of_delivery(["payroll"], "at_most_once") == []
    assert of_delivery(["payrolls"], "at_least_once") == []
