"""The dialect is what docs/cron.md says: its tables are the test's tables."""

import re
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chrono.rules import dialect
from chrono.rules.errors import BadCron, BadSchedule
from chrono.rules.instants import HOUR, MINUTE, format_instant, parse_instant
from chrono.rules.schedule import (
    CronSchedule,
    next_after,
    occurrences,
    parse,
    resolve,
    validate,
)

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "cron.md"
NO_JOB = UUID(int=0)
NEW_YEAR = parse_instant("2026-01-01T00:00:00Z")


def table(heading):
    section = DOCUMENT.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(
        r"^\| `(.+?)` \| (yes|no) \| .* \| (.+) \|$", section, re.MULTILINE
    )
    return [(text, seconds == "yes", last) for text, seconds, last in rows]


def checked(text, *, seconds, job_id=NO_JOB):
    schedule = resolve(parse(text, anchor=NEW_YEAR, seconds=seconds), job_id)
    validate(schedule)
    return schedule


def test_the_document_has_both_tables():
    assert len(table("Accepted")) >= 40
    assert len(table("Refused")) >= 40


@pytest.mark.parametrize(("text", "seconds", "first"), table("Accepted"))
def test_what_the_document_accepts_fires_as_it_says(text, seconds, first):
    schedule = checked(text, seconds=seconds)
    assert format_instant(next_after(schedule, NEW_YEAR)) == first


@pytest.mark.parametrize(("text", "seconds", "offer"), table("Refused"))
def test_what_the_document_refuses_is_refused_with_its_offer(text, seconds, offer):
    with pytest.raises(BadSchedule) as refused:
        checked(text, seconds=seconds)
    assert refused.value.field == "cron"
    assert refused.value.code in ("bad_cron", "never_fires")
    wanted = re.findall(r"`[^`]+`", offer) or [offer]
    assert [part for part in wanted if part not in refused.value.message] == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "0 0 * * *\n",
        "0 0 * * *\n0 1 * * *",
        "0 0\0 * * *",
        "0 ٣ * * *",
        "0 " * 200,
        "0 0 1,,2 * *",
        ",* * * * *",
        "+5 * * * *",
        "*/ * * * *",
        "1--2 * * * *",
        "*-5 * * * *",
        "mon * * * *",
        "0 0 * * 1-5#2",
        "0 0 15WW * *",
        "0 0 32W * *",
        "H H * *",
        "H(5-5) * * * *",
        "H(9) * * * *",
        "@DAILY extra",
    ],
)
def test_other_nonsense_is_refused(text):
    with pytest.raises(BadCron):
        checked(text, seconds=False)


@given(st.text(max_size=300))
@example("١ * * * *")
def test_any_text_is_read_or_refused_and_nothing_else(text):
    for seconds in (False, True):
        try:
            schedule = checked(text, seconds=seconds)
        except BadSchedule:
            continue
        assert next_after(schedule, NEW_YEAR) > NEW_YEAR


@given(st.text(alphabet="*0123456789,-/lwh#?@jmon() ", max_size=30))
def test_any_text_of_the_right_letters_is_read_or_refused(text):
    try:
        schedule = checked(text, seconds=False)
    except BadSchedule:
        return
    assert next_after(schedule, NEW_YEAR) > NEW_YEAR


def test_blanks_tabs_and_large_letters_do_not_matter():
    plain = dialect.read("0 8 * jan mon-fri", seconds=False)
    assert dialect.read(" 0\t8  *  JAN Mon-Fri ", seconds=False) == plain


def test_a61_a_start_with_a_step_is_written_out():
    assert dialect.read("5/15 * * * 2/2", seconds=False).minute == "5-59/15"
    # Not to 7: a step from Tuesday does not reach Sunday.
    assert dialect.read("5/15 * * * 2/2", seconds=False).day_of_week == "2-6/2"


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("30 2 * * *", True),
        ("0,30 0-23 */2 * *", True),
        ("*/30 2 * * *", False),
        ("0 * * * *", False),
        ("0 */2 * * *", False),
        ("*,5 2 * * *", False),
    ],
)
def test_fixed_time_is_a_minute_and_hour_without_a_leading_star(text, fixed):
    assert dialect.read(text, seconds=False).fixed_time is fixed


def test_an_h_without_a_job_is_refused():
    with pytest.raises(BadCron, match="id of a job"):
        validate(CronSchedule("H * * * *"))


def test_h_is_of_fixed_time_once_resolved():
    resolved = dialect.resolve_hashes("H H * * *", uuid4(), seconds=False)
    assert dialect.read(resolved, seconds=False).fixed_time


def test_a64_h_spreads_jobs_over_the_whole_column():
    jobs = [UUID(int=number) for number in range(3000)]
    minutes = {
        dialect.resolve_hashes("H 3 * * *", job, seconds=False).split()[0]
        for job in jobs
    }
    assert minutes == {str(minute) for minute in range(60)}
    days = {
        dialect.resolve_hashes("0 0 H * *", job, seconds=False).split()[2]
        for job in jobs
    }
    assert days == {str(day) for day in range(1, 29)}


@pytest.mark.parametrize(("step", "counts"), [(5, {12}), (20, {3}), (7, {8, 9})])
def test_a64_h_with_a_step_fires_as_often_for_every_job(step, counts):
    found = set()
    for number in range(300):
        schedule = checked(f"H/{step} * * * *", seconds=False, job_id=UUID(int=number))
        hour = list(occurrences(schedule, NEW_YEAR - 1, NEW_YEAR + HOUR - MINUTE))
        found.add(len(hour))
    assert found == counts


@given(st.uuids(), st.integers(0, 58), st.data())
def test_h_in_a_range_stays_in_it(job_id, low, data):
    high = data.draw(st.integers(low + 1, 59))
    text = dialect.resolve_hashes(f"H({low}-{high}) * * * *", job_id, seconds=False)
    assert low <= int(text.split()[0]) <= high


def test_the_value_of_h_is_the_same_for_ever():
    job_id = UUID("01940000-0000-7000-8000-000000000001")
    resolved = dialect.resolve_hashes("H H(8-17) H H H", job_id, seconds=False)
    assert resolved == "0 9 13 1 5"


def test_without_h_the_text_stays_as_typed():
    assert dialect.resolve_hashes("@daily", NO_JOB, seconds=False) == "@daily"
    assert (
        dialect.resolve_hashes(" 0 0 * * Thu", NO_JOB, seconds=False) == " 0 0 * * Thu"
    )
