"""A preview tells when, and what may surprise; the command prints it."""

import itertools
import json
import statistics
import time
from uuid import UUID

import pytest
from django.core.management import call_command

from chrono.rules.instants import parse_instant
from chrono.rules.preview import foresee, preview
from chrono.rules.schedule import CronSchedule, FixedDelay

AFTER = "2026-01-01T00:00:00Z"


def codes(expression, **options):
    answer = preview(expression, after=parse_instant(AFTER), **options)
    return [warning["code"] for warning in answer["warnings"]]


def test_fires_come_in_utc_and_as_local_time():
    answer = preview(
        "30 2 * * *",
        timezone="America/New_York",
        after=parse_instant("2026-03-07T12:00:00Z"),
        count=2,
    )
    assert answer["fires"] == ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]
    assert answer["local"] == [
        "2026-03-08T03:00:00-04:00",
        "2026-03-09T02:30:00-04:00",
    ]


@pytest.mark.parametrize(
    ("expression", "options", "code", "field"),
    [
        ("0 0 31 2 *", {}, "never_fires", "cron"),
        ("0 24 * * *", {}, "bad_cron", "cron"),
        ("0 0 * * *", {"timezone": "Mars/Olympus"}, "unknown_timezone", "timezone"),
        ("0 0 * * *", {"count": 0}, "bad_value", "count"),
        ("@every 1ms", {}, "bad_schedule", "interval"),
    ],
)
def test_what_cannot_be_saved_is_an_error(expression, options, code, field):
    answer = preview(expression, after=0, **options)
    assert set(answer) == {"error"}
    assert answer["error"]["code"] == code
    assert answer["error"]["field"] == field
    assert answer["error"]["message"]


def test_it_takes_less_than_five_milliseconds_once_the_zone_is_known():
    codes("1 1 * * *", timezone="Europe/Berlin")
    columns = ["9 * * 1-5", "2 * * *", "* * * *", "9 1,15 * 5", "0 L 2 *", "3 29 2 *"]
    spent = []
    for minute, rest in itertools.product(("7", "*/15", "0,30", "H"), columns):
        start = time.process_time()
        codes(f"{minute} {rest}", timezone="Europe/Berlin", count=20)
        spent.append(time.process_time() - start)
    assert statistics.median(spent) < 0.005


def test_the_command_prints_one_json_object(capsys):
    call_command(
        "preview",
        "30 2 * * *",
        "--timezone=America/New_York",
        "--after=2026-03-08T05:00:00Z",
        "--count=2",
        "--json",
    )
    answer = json.loads(capsys.readouterr().out)
    assert answer["fires"] == ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]
    assert [warning["code"] for warning in answer["warnings"]] == ["dst-gap"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["0 0 31 2 *", "--after", AFTER], "never_fires"),
        (["0 9 * * *", "--after", "yesterday"], "bad_instant"),
    ],
)
def test_the_command_fails_with_an_error_object(capsys, arguments, code):
    with pytest.raises(SystemExit) as exited:
        call_command("preview", *arguments, "--json")
    assert exited.value.code == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == code


def test_the_command_speaks_to_people_too(capsys):
    call_command("preview", "0 9 * * *", "--after", AFTER, "--count", "1")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2026-01-01T09:00:00Z  2026-01-01T09:00:00+00:00"
    assert lines[1].startswith("top-of-hour: ")
    with pytest.raises(SystemExit):
        call_command("preview", "0 24 * * *")
    assert capsys.readouterr().err.startswith("bad_cron: hour: 24")


def foreseen(cron, after, count=3, **options):
    schedule = CronSchedule(cron, **options)
    return foresee(schedule, after=parse_instant(after), count=count)


def test_a_fire_moved_out_of_a_gap_says_so():
    found = foreseen("30 2 * * *", "2027-03-13T12:00:00Z", timezone="America/New_York")
    moved, *rest = found.fires
    assert moved.local == "2027-03-14T03:00:00-04:00"
    assert moved.note == "02:30 does not exist on this day: it fires here instead"
    assert [fire.note for fire in rest] == [None, None]
    assert found.text == "At 02:30 every day, America/New_York time."


def test_a_fire_that_is_on_the_first_instant_after_a_gap_anyway_has_no_note():
    found = foreseen("0 3 * * *", "2027-03-13T12:00:00Z", timezone="America/New_York")
    assert found.fires[0].local == "2027-03-14T03:00:00-04:00"
    assert found.fires[0].note is None


def test_both_fires_of_a_repeated_hour_say_which_they_are():
    found = foreseen(
        "30 1 * * *",
        "2026-11-01T04:00:00Z",
        timezone="America/New_York",
        dst_fold="both",
    )
    assert [fire.note for fire in found.fires] == [
        "01:30 comes twice on this day: this is the first",
        "01:30 comes twice on this day: this is the second",
        None,
    ]


def test_what_h_stands_for_is_an_example_until_there_is_a_job():
    after = parse_instant("2026-01-01T00:00:00Z")
    schedule = CronSchedule("H 3 * * *")
    found = foresee(schedule, after=after, count=1)
    assert [one.code for one in found.warnings] == ["hash-example"]
    settled = foresee(schedule, after=after, count=1, job_id=UUID(int=7))
    assert settled.warnings == ()


def test_a_fixed_delay_shows_the_one_fire_that_can_be_told():
    now = parse_instant("2026-01-01T00:00:00Z")
    found = foresee(FixedDelay(delay=300_000, anchor=now), after=now, count=10)
    assert [fire.at for fire in found.fires] == [now + 300_000]
    later = FixedDelay(delay=300_000, anchor=now + 7)
    assert [fire.at for fire in foresee(later, after=now, count=10).fires] == [now + 7]


def test_fires_lie_between_the_start_and_the_end():
    start, end = (parse_instant(f"2026-01-0{n}T09:00:00Z") for n in (3, 5))
    bounded = CronSchedule("0 9 * * *", starts_at=start, ends_at=end)
    found = foresee(bounded, after=0, count=10)
    days = [start, start + 86_400_000, end]
    assert [fire.at for fire in found.fires] == days
    assert "from 2026-01-03T09:00:00Z on, until 2026-01-05T09:00:00Z" in found.text
