"""The oracle and the engine agree, and croniter with both where it can be trusted."""

import ast
import csv
import sys
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import pytest
from croniter import croniter
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chrono.rules import oracle
from chrono.rules.errors import BadSchedule
from chrono.rules.instants import (
    DAY,
    HOUR,
    LATEST,
    MINUTE,
    SECOND,
    format_instant,
    from_millis,
    parse_instant,
    to_millis,
)
from chrono.rules.schedule import (
    CronSchedule,
    Interval,
    Once,
    occurrences,
    parse,
    resolve,
    schedule_from_json,
    schedule_to_json,
    validate,
)
from tests.architecture.sources import ROOT, name_of, tree, within
from tests.rules.test_dialect import NEW_YEAR, NO_JOB, table
from tests.support import clock_changes

FIXTURES = Path(__file__).with_name("fixtures") / "cron-fixtures.csv"

# The two sides of what can go wrong: gaps and folds of an hour, of half an hour, of
# two, at midnight, several in one year, a lost day, and an offset with seconds.
CHANGES = [
    (zone, to_millis(change))
    for zone, year in [
        ("Africa/Cairo", 2026),
        ("Africa/Casablanca", 2026),
        ("America/New_York", 2026),
        ("America/Santiago", 2026),
        ("America/Sao_Paulo", 2018),
        ("America/St_Johns", 2006),
        ("Antarctica/Troll", 2026),
        ("Australia/Lord_Howe", 2026),
        ("Europe/Dublin", 2026),
        ("Pacific/Apia", 2011),
        ("Africa/Monrovia", 1972),
    ]
    for change in clock_changes.changes(zone, year)
]


def first_fires(fields, after, count):
    return list(islice(oracle.fires(fields, after, LATEST - 1), count))


@pytest.mark.parametrize(("text", "seconds", "first"), table("Accepted"))
def test_what_the_document_accepts_fires_as_it_says(text, seconds, first):
    schedule = resolve(parse(text, anchor=NEW_YEAR, seconds=seconds), NO_JOB)
    [found] = first_fires(schedule_to_json(schedule), NEW_YEAR, 1)
    assert format_instant(found) == first


def fixture_rows():
    with FIXTURES.open() as file:
        return [pytest.param(row, id=row["id"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("row", fixture_rows())
def test_the_fixtures_of_the_field_are_right(row):
    expected = [
        parse_instant(text.strip().replace(" ", "T").removesuffix("Z") + "Z")
        for text in row["expected_next_utc"].split("|")
    ]
    base = parse_instant(row["base_utc"].replace(" ", "T").removesuffix("Z") + "Z")
    fields = {"cron": row["expression"], "timezone": row["zone"]}
    assert first_fires(fields, base, len(expected)) == expected


def column(*items):
    """Return a column of one to three items."""
    return st.lists(st.sampled_from(items), min_size=1, max_size=3).map(",".join)


@st.composite
def dialect(draw):
    """Return the fields of a cron schedule, weighted towards the small hours."""
    seconds = draw(st.sampled_from([[], [], [], ["0"], ["*/20"], ["5,59"], ["*/7"]]))
    minute = st.sampled_from(["*", "*/15", "*/7", "H/20", "H(5-40)"]) | column(
        "0", "30", "10-20", "5/20", "52", "0-59/29"
    )
    hour = st.sampled_from(["*", "*/2", "*/6", "H(0-3)"]) | column(
        "0-5", "1", "2", "3", "23", "0/3", "1-3", "22-23"
    )
    day = st.sampled_from(["*", "*", "*", "*/2", "H"]) | column(
        "1-15", "25-31", "L", "LW", "15W", "1W", "29", "31", "5/6"
    )
    month = st.sampled_from(["*", "*", "*/2"]) | column("mar", "10-12", "1-6", "JUL")
    weekday = st.sampled_from(["*", "*", "*/2", "*/7"]) | column(
        "0", "7", "1-5", "fri-sun", "6-7", "SAT", "5L", "sunL", "1/3", "7/2"
    )
    nth = st.sampled_from(["5#3", "mon#1", "7#2", "3#5,0"])
    days = st.tuples(day, month, weekday) | st.tuples(st.just("*"), month, nth)
    text = " ".join([*seconds, draw(minute), draw(hour), *draw(days)])
    return {
        "cron": text,
        "seconds": bool(seconds),
        "dst_gap": draw(st.sampled_from(["shift", "shift", "skip"])),
        "dst_fold": draw(st.sampled_from(["first", "first", "second", "both"])),
    }


@settings(max_examples=400)
@given(
    dialect(),
    st.sampled_from(CHANGES),
    st.integers(-30 * HOUR, 12 * HOUR),
    st.integers(0, 40 * HOUR),
    st.uuids(),
)
@example(
    {"cron": "0 0 31 2 1", "seconds": False, "dst_gap": "shift", "dst_fold": "first"},
    CHANGES[0],
    0,
    DAY,
    NO_JOB,
)
def test_the_engine_fires_when_the_oracle_says(fields, change, before, length, job):
    zone, moment = change
    schedule = schedule_from_json({**fields, "timezone": zone}, job_id=job)
    try:
        validate(schedule)
    except BadSchedule:
        return
    after = moment + before
    found = list(occurrences(schedule, after, after + length))
    assert found == list(
        oracle.fires(schedule_to_json(schedule), after, after + length)
    )


@settings(max_examples=30)
@given(
    dialect(),
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"]),
    st.integers(NEW_YEAR, NEW_YEAR + 3 * 366 * DAY),
)
def test_they_agree_over_a_season(fields, zone, after):
    fields["cron"] = fields["cron"].replace("*/7 ", "0 ", 1)
    schedule = schedule_from_json({**fields, "timezone": zone}, job_id=NO_JOB)
    try:
        validate(schedule)
    except BadSchedule:
        return
    until = after + 45 * DAY
    found = islice(occurrences(schedule, after, until), 2_000)
    told = islice(oracle.fires(schedule_to_json(schedule), after, until), 2_000)
    assert list(found) == list(told)


naive = st.tuples(
    st.sampled_from(["0", "*/20", "5-50/15", "59"]),
    st.sampled_from(["0", "*/7", "8-18/3", "23"]),
    st.sampled_from(["*", "*/5", "1", "13", "29-31", "10-20/4"]),
    st.sampled_from(["*", "2,3", "*/5", "jan-mar", "4,6,9,11"]),
    st.sampled_from(["*", "1", "mon-fri", "0,6", "2-4", "*/3"]),
).map(" ".join)


@settings(max_examples=100)
@given(naive, st.integers(0, 27), st.integers(1, 12))
def test_croniter_says_the_same_of_the_naive_wall_clock(expression, day, month):
    # Kolkata has not changed its clocks since 1945: there wall time is UTC, shifted.
    start = datetime(2026, month, 1, tzinfo=UTC) + timedelta(days=day)
    end = start + timedelta(days=40)
    # implement_cron_bug is croniter's name for joining by AND after a leading `*`.
    walk = croniter(expression, start, implement_cron_bug=True)
    expected, wall = [], walk.get_next(datetime)
    while wall <= end:
        expected.append(wall)
        wall = walk.get_next(datetime)
    ahead = timedelta(hours=5, minutes=30)
    after, until = (
        to_millis((one - ahead).replace(tzinfo=UTC)) for one in (start, end)
    )
    found = oracle.fires({"cron": expression, "timezone": "Asia/Kolkata"}, after, until)
    assert [from_millis(at) + ahead for at in found] == expected


moments = st.integers(NEW_YEAR - DAY, NEW_YEAR + 2 * DAY)


@given(
    st.sampled_from(["*/10 * * * *", "0 5 * * *", "interval"]),
    moments,
    st.none() | moments,
    moments,
    st.integers(0, DAY),
)
def test_bounds_let_through_what_lies_between_both_included(
    kind, starts_at, ends_at, after, length
):
    if kind == "interval":
        schedule = Interval(every=7 * MINUTE, anchor=starts_at, ends_at=ends_at)
    else:
        schedule = CronSchedule(kind, starts_at=starts_at, ends_at=ends_at)
    found = list(oracle.fires(schedule_to_json(schedule), after, after + length))
    assert found == list(occurrences(schedule, after, after + length))
    assert all(starts_at <= at <= (ends_at or LATEST) for at in found)


def test_a_fire_on_the_bound_is_within_it():
    at = NEW_YEAR + HOUR
    bounds = {"starts_at": format_instant(at), "ends_at": format_instant(at)}
    assert first_fires({"cron": "0 * * * *", **bounds}, 0, 2) == [at]


@given(moments, moments, st.integers(0, DAY))
def test_a_single_instant_fires_once(at, after, length):
    found = list(oracle.fires(schedule_to_json(Once(at=at)), after, after + length))
    assert found == ([at] if after < at <= after + length else [])


def test_a_second_of_every_minute_is_found_where_the_offset_has_seconds():
    # Liberia was 44 min 30 s behind UTC until 7 January 1972.
    fields = {"cron": "15 12 12 * * *", "seconds": True, "timezone": "Africa/Monrovia"}
    after = parse_instant("1971-06-01T00:00:00Z")
    assert [format_instant(at) for at in first_fires(fields, after, 1)] == [
        "1971-06-01T12:56:45Z"
    ]


def test_what_starts_after_a_run_ends_is_not_told():
    assert not oracle.is_predictable({"fixed_delay": "5m"})
    assert oracle.is_predictable({"interval": "5m"})
    assert oracle.is_predictable({"cron": "@daily"})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"fixed_delay": "5m"},
        {"cron": "H * * * *"},
        {"cron": "* * * *"},
        {"cron": "@reboot"},
        {"cron": "* * * * *", "timezone": "Europe/Berln"},
        {"interval": "soon", "starts_at": "2026-01-01T00:00:00Z"},
        {"interval": "0s", "starts_at": "2026-01-01T00:00:00Z"},
        {"interval": "5m"},
        {"run_at": "soon"},
        {"run_at": 5},
    ],
)
def test_what_cannot_be_read_is_said_so(fields):
    with pytest.raises(oracle.Unreadable):
        first_fires(fields, NEW_YEAR, 1)


def test_years_of_a_rare_schedule_and_a_day_of_a_dense_one_are_a_matter_of_moments():
    rare = first_fires({"cron": "0 0 29 2 */7"}, NEW_YEAR, 4)
    assert [format_instant(at)[:4] for at in rare] == ["2032", "2060", "2088", "2128"]
    dense = {"cron": "* * * * * *", "seconds": True, "timezone": "Europe/Berlin"}
    found = list(oracle.fires(dense, NEW_YEAR, NEW_YEAR + DAY))
    assert found == list(range(NEW_YEAR + SECOND, NEW_YEAR + DAY + 1, SECOND))


def imported(path):
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_oracle_shares_nothing_and_decides_nothing():
    [path] = [p for p in within("chrono", ".py") if p.name == "oracle.py"]
    roots = {name.split(".")[0] for name in imported(path)}
    assert roots <= sys.stdlib_module_names
    askers = {
        name_of(p)
        for p in [*within("chrono", ".py"), *within("apps", ".py")]
        if "chrono.rules.oracle" in set(imported(p))
    }
    assert askers <= {"chrono/rules/ledger.py", "apps/jobs/audit_trial.py"}
    assert ROOT in path.parents
