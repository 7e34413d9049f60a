"""When schedules fire, in any zone there is and any year from 1990 to 2060.

`LONG_MODELS=10` looks at ten times as many.
"""

import os
import zoneinfo
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chrono.rules import oracle
from chrono.rules.instants import (
    DAY,
    HOUR,
    LATEST,
    SECOND,
    Millis,
    from_millis,
    to_millis,
)
from chrono.rules.schedule import (
    CronSchedule,
    Interval,
    Schedule,
    next_after,
    occurrences,
    schedule_to_json,
)
from tests.support import clock_changes

pytestmark = pytest.mark.timeout(600)

EXAMPLES = settings(max_examples=200 * int(os.environ.get("LONG_MODELS", "1")))
ZONES = sorted(zoneinfo.available_timezones())
STEPS = 10_000

# fmt: off
MINUTES = ["*", "*/5", "*/15", "*/7", "0", "30", "0,30", "15,45", "10-20", "5/20"]
HOURS = ["*", "*/2", "0-23", "0", "1", "2", "3", "23", "0,2", "1-3", "23,0", "0/3"]
DAYS = ["*", "*", "*", "*/2", "1-15", "1,15,29", "25-31"]
WEEKDAYS = ["*", "*", "*", "0", "1-5", "6-7", "*/2"]
# fmt: on


@cache
def changes(zone: str, year: int) -> list[Millis]:
    """Return a year's clock changes of a zone, each up to six hours late."""
    return [to_millis(late) for late in clock_changes.changes(zone, year)]


@st.composite
def moments(draw: st.DrawFn, zone: str) -> Millis:
    """Draw an instant, near a change of the zone's clocks where the year has one."""
    year = draw(st.integers(1990, 2060))
    near = changes(zone, year)
    if near:
        return draw(st.sampled_from(near)) + draw(st.integers(-30 * HOUR, 18 * HOUR))
    return to_millis(datetime(year, 1, 1, tzinfo=UTC)) + draw(st.integers(0, 365 * DAY))


columns = st.tuples(
    st.sampled_from(MINUTES),
    st.sampled_from(HOURS),
    st.sampled_from(DAYS),
    st.just("*"),
    st.sampled_from(WEEKDAYS),
).map(" ".join)


@st.composite
def schedules(draw: st.DrawFn, zone: str) -> CronSchedule:
    """Draw a cron of a zone, weighted towards the hours in which clocks change."""
    return CronSchedule(
        draw(columns),
        zone,
        dst_gap=draw(st.sampled_from(["shift", "skip"])),
        dst_fold=draw(st.sampled_from(["first", "second", "both"])),
    )


def foretold(schedule: Schedule, after: Millis, until: Millis) -> list[Millis]:
    """Return what the oracle says of (after, until]."""
    return list(oracle.fires(schedule_to_json(schedule), after, until))


@EXAMPLES
@given(st.data())
def test_every_occurrence_is_there_once_and_in_order(data: st.DataObject) -> None:
    zone = data.draw(st.sampled_from(ZONES))
    schedule = data.draw(schedules(zone))
    start = data.draw(moments(zone))
    end = start + data.draw(st.integers(1, 3)) * DAY
    found = list(occurrences(schedule, start, end))
    assert found == foretold(schedule, start, end)
    assert all(earlier < later for earlier, later in pairwise(found))
    base = data.draw(st.integers(start, end))
    following = next_after(schedule, base)
    assert following is not None
    assert following > base
    assert following == next((m for m in found if m > base), following)
    assert following > end or following in found


@EXAMPLES
@given(st.data())
def test_the_policies_differ_in_what_a_change_touches_and_nowhere_else(
    data: st.DataObject,
) -> None:
    # Said without an oracle: how the answers of the policies relate to each other.
    zone = data.draw(st.sampled_from(ZONES))
    expression = data.draw(columns)
    start = data.draw(moments(zone))

    def fires(gap: str, fold: str) -> set[Millis]:
        schedule = CronSchedule(expression, zone, dst_gap=gap, dst_fold=fold)  # type: ignore[arg-type]
        return set(occurrences(schedule, start, start + DAY))

    first, second, both = (fires("shift", fold) for fold in ("first", "second", "both"))
    assert first | second == both
    clock = zoneinfo.ZoneInfo(zone)
    for moment in first ^ second:
        local = from_millis(moment).astimezone(clock)
        assert local.utcoffset() != local.replace(fold=1 - local.fold).utcoffset()
        assert (moment in first) == (local.fold == 0)
    made_up = first - fires("skip", "first")
    for moment in made_up:
        before = from_millis(moment - SECOND).astimezone(clock).utcoffset()
        after = from_millis(moment).astimezone(clock).utcoffset()
        assert before is not None
        assert after is not None
        assert timedelta(0) < after - before < timedelta(hours=3)
    assert fires("skip", "first") <= first


@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Lord_Howe", "UTC"])
@pytest.mark.parametrize("expression", ["* * * * *", "*/7 * * * *", "3/10 0-23 * * *"])
def test_ten_thousand_steps_are_where_the_oracle_says(
    zone: str, expression: str
) -> None:
    schedule = CronSchedule(expression, zone)
    start = next(iter(changes(zone, 2026)), to_millis(datetime(2026, 1, 1, tzinfo=UTC)))
    start -= DAY
    walked = [start]
    for _ in range(STEPS):
        following = next_after(schedule, walked[-1])
        assert following is not None
        walked.append(following)
    assert walked[1:] == foretold(schedule, start, walked[-1])


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "Africa/Casablanca", "Asia/Kathmandu"]
)
def test_ten_thousand_days_keep_their_time_of_day(zone: str) -> None:
    schedule = CronSchedule("30 13 * * *", zone)
    moment, clock = to_millis(datetime(2025, 1, 1, tzinfo=UTC)), zoneinfo.ZoneInfo(zone)
    dates = []
    for _ in range(STEPS):
        following = next_after(schedule, moment)
        assert following is not None
        moment = following
        local = from_millis(moment).astimezone(clock)
        assert (local.hour, local.minute, local.second) == (13, 30, 0)
        dates.append(local.date())
    assert {later - earlier for earlier, later in pairwise(dates)} == {
        timedelta(days=1)
    }


@given(st.integers(1_000, 400 * DAY), st.integers(0, 2**40), st.integers(0, 2**40))
def test_ten_thousand_intervals_are_that_many_times_one(
    every: Millis, anchor: Millis, start: Millis
) -> None:
    schedule = Interval(every=every, anchor=anchor)
    first = next_after(schedule, start)
    assert first is not None
    assert (first - anchor) % every == 0
    moment = first
    for _ in range(100):
        following = next_after(schedule, moment)
        assert following is not None
        moment = following
    assert moment == first + 100 * every
    far = first + STEPS * every
    assert next_after(schedule, far - 1) == (far if far < LATEST else None)


@EXAMPLES
@given(st.data())
def test_an_edit_of_zone_or_cron_splits_time_at_its_instant(
    data: st.DataObject,
) -> None:
    zone = data.draw(st.sampled_from(ZONES))
    begin = data.draw(moments(zone))
    eras: list[tuple[Millis, CronSchedule]] = [(begin, data.draw(schedules(zone)))]
    for _ in range(data.draw(st.integers(1, 3))):
        edited = eras[-1][0] + data.draw(st.integers(0, 20 * HOUR))
        new = data.draw(schedules(data.draw(st.sampled_from([zone, *ZONES[:3]]))))
        eras.append((edited, new))
    ends = [edited for edited, _ in eras[1:]] + [eras[-1][0] + DAY]
    fired: list[Millis] = []
    wanted: list[Millis] = []
    for (start, schedule), end in zip(eras, ends, strict=True):
        timer = next_after(schedule, start)
        while timer is not None and timer <= end:
            fired.append(timer)
            timer = next_after(schedule, timer)
        wanted += foretold(schedule, start, end)
    assert fired == wanted
    assert all(earlier < later for earlier, later in pairwise(fired))
