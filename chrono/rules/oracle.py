"""A second opinion on when a schedule fires, for those who check the first one.

Written from docs/cron.md alone. It reads the text its own way, asks the standard
library what the wall clock shows, minute by minute, and applies the rules to what it
saw. It shares no line with the rules that plan (`cron`, `dialect`, `zones`,
`schedule`), so a fault of theirs is not also one of its own. Nothing that plans or
fires may ask it.

A schedule comes as the JSON that a revision has: H is resolved, and what `written`
says is not looked at.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import product
from typing import Any

type Millis = int

zoneinfo.reset_tzpath(())

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
END: Millis = 253_370_764_800_000
"""9999-01-01T00:00:00Z: nothing fires from here on."""
MS = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
LOST_DAY = timedelta(hours=3)
"""How much has to be missing from a day for nothing to be made up for."""

UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * sun",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
# fmt: off
MONTHS = (
    "jan", "feb", "mar", "apr", "may", "jun",
    "jul", "aug", "sep", "oct", "nov", "dec",
)
# fmt: on
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class Unreadable(ValueError):
    """The oracle knows no such schedule."""


def is_predictable(schedule: Mapping[str, Any]) -> bool:
    """Return whether the schedule alone says when it fires.

    A `fixed_delay` counts from the end of each run, which no schedule knows.
    """
    return not schedule.get("fixed_delay")


def fires(
    schedule: Mapping[str, Any], after: Millis, until: Millis
) -> Iterator[Millis]:
    """Iterate over the fires in (after, until], earliest first.

    None lies before a `starts_at` or later than an `ends_at`. Raises Unreadable, with
    the first step, for what it cannot read.
    """
    first, last = after + 1, min(until, END - 1)
    if schedule.get("starts_at"):
        first = max(first, _instant(schedule["starts_at"]))
    if schedule.get("ends_at"):
        last = min(last, _instant(schedule["ends_at"]))
    if schedule.get("cron"):
        yield from _cron(schedule, first, last)
    elif schedule.get("interval"):
        anchor = _instant(schedule.get("starts_at"))
        every = _span(schedule["interval"])
        yield from range(
            anchor + -(-(first - anchor) // every) * every, last + 1, every
        )
    elif schedule.get("run_at"):
        if first <= (moment := _instant(schedule["run_at"])) <= last:
            yield moment
    else:
        raise Unreadable("neither cron, interval nor run_at")


def _instant(text: Any) -> Millis:
    try:
        return (datetime.fromisoformat(text).astimezone(UTC) - EPOCH) // MS
    except (TypeError, ValueError):
        raise Unreadable(f"instant {text}") from None


def _span(text: Any) -> Millis:
    match = re.fullmatch(r"([0-9]+)(ms|s|m|h|d)", str(text))
    if match is None or not int(match[1]):
        raise Unreadable(f"interval {text}")
    return int(match[1]) * UNITS[match[2]]


def _cron(schedule: Mapping[str, Any], first: Millis, last: Millis) -> Iterator[Millis]:
    columns = _read(str(schedule["cron"]).lower())
    zone = str(schedule.get("timezone", "UTC"))
    gap, fold = schedule.get("dst_gap", "shift"), schedule.get("dst_fold", "first")
    for number in range(first // UNITS["d"], last // UNITS["d"] + 1):
        # No zone is a whole day away from UTC, but a clock may jump over the night.
        around = (EPOCH + (number + step) * DAY for step in (-1, 0, 1))
        if not any(columns.takes(moment.date()) for moment in around):
            continue
        for stretch in _clock(zone, number):
            for moment in _within(stretch, columns, gap, fold):
                if first <= moment <= last:
                    yield moment


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A part of a UTC day in which the wall clock goes on without a jump."""

    at: Millis
    """When it begins."""
    wall: datetime
    """What the wall clock shows then."""
    length: timedelta
    missing: timedelta
    """How much the wall clock jumped over just before."""
    to_come: bool
    """Whether the wall clock will show all this again."""
    again: bool
    """Whether the wall clock showed all this before."""


@lru_cache(maxsize=4096)
def _clock(zone_name: str, number: int) -> tuple[_Stretch, ...]:
    """Return what the wall clock of a zone shows on a UTC day, seen each minute."""
    try:
        zone = zoneinfo.ZoneInfo(zone_name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise Unreadable(f"time zone {zone_name}") from None
    moment = EPOCH + number * DAY
    end = moment + DAY
    expected = (moment - MINUTE).astimezone(zone).replace(tzinfo=None) + MINUTE
    # The instant, the wall clock, how much is missing, to come, again.
    begins: list[tuple[datetime, datetime, timedelta, bool, bool]] = []
    while moment < end:
        local = moment.astimezone(zone)
        wall = local.replace(tzinfo=None)
        again = local.fold == 1
        to_come = not again and local.utcoffset() != local.replace(fold=1).utcoffset()
        jump = wall - expected
        if not begins or jump or begins[-1][3:] != (to_come, again):
            begins.append((moment, wall, max(jump, timedelta(0)), to_come, again))
        # Whole minutes of the wall clock: some offsets of old had seconds.
        step = MINUTE - timedelta(seconds=wall.second)
        moment += step
        expected = wall + step
    ends = [begin[0] for begin in begins[1:]] + [end]
    return tuple(
        _Stretch((begin - EPOCH) // MS, wall, stop - begin, missing, to_come, again)
        for (begin, wall, missing, to_come, again), stop in zip(
            begins, ends, strict=True
        )
    )


def _within(
    stretch: _Stretch, columns: _Columns, gap: str, fold: str
) -> Iterator[Millis]:
    """Iterate over the fires of a stretch, earliest first."""
    made_up = (
        columns.fixed_time
        and gap == "shift"
        and timedelta(0) < stretch.missing < LOST_DAY
        and next(columns.between(stretch.wall - stretch.missing, stretch.wall), None)
        is not None
    )
    if made_up:
        yield stretch.at
    if columns.fixed_time and (
        (fold == "first" and stretch.again) or (fold == "second" and stretch.to_come)
    ):
        return
    for passed in columns.between(stretch.wall, stretch.wall + stretch.length):
        if passed or not made_up:
            yield stretch.at + 1_000 * passed


@dataclass(frozen=True, slots=True)
class _Columns:
    """An expression, read."""

    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]
    days: frozenset[int]
    special_days: tuple[str, ...]
    """Any of l, lw and 15w."""
    months: frozenset[int]
    weekdays: frozenset[int]
    """Sunday is 0."""
    special_weekdays: tuple[str, ...]
    """Such as 5l and 5#3."""
    both_days: bool
    fixed_time: bool

    def takes(self, day: date) -> bool:
        """Return whether it fires on a day at all."""
        if day.month not in self.months:
            return False
        of_month = day.day in self.days or any(
            _is_day(item, day) for item in self.special_days
        )
        of_week = day.isoweekday() % 7 in self.weekdays or any(
            _is_weekday(item, day) for item in self.special_weekdays
        )
        return (of_month and of_week) if self.both_days else (of_month or of_week)

    def between(self, begin: datetime, end: datetime) -> Iterator[int]:
        """Iterate over when it fires while the wall clock shows [begin, end).

        Told in seconds from the begin.
        """
        length = (end - begin) // SECOND
        day = begin.date()
        while day <= end.date():
            midnight = (datetime.combine(day, time()) - begin) // SECOND
            if self.takes(day):
                for hour, minute, second in product(
                    self.hours, self.minutes, self.seconds
                ):
                    passed = midnight + 3600 * hour + 60 * minute + second
                    if 0 <= passed < length:
                        yield passed
            day += DAY


def _is_day(item: str, day: date) -> bool:
    if item == "l":
        return (day + DAY).month != day.month
    days = (day.replace(day=1) + n * DAY for n in range(31))
    month = [other for other in days if other.month == day.month]
    work = [other for other in month if other.isoweekday() <= 5]
    if item == "lw":
        return day == work[-1]
    wanted = int(item[:-1])
    nearest = min(work, key=lambda other: abs(other.day - wanted))
    return wanted <= len(month) and day == nearest


def _is_weekday(item: str, day: date) -> bool:
    if int(item[0]) % 7 != day.isoweekday() % 7:
        return False
    if item.endswith("l"):
        return (day + 7 * DAY).month != day.month
    return int(item[2:]) == (day.day + 6) // 7


@lru_cache(maxsize=4096)
def _read(text: str) -> _Columns:
    texts = WORDS.get(text.strip(), text).split()
    if len(texts) == 5:
        # At the full minute, also where `seconds` allows six columns.
        texts.insert(0, "0")
    if len(texts) != 6:
        raise Unreadable(f"cron {text}")
    second, minute, hour, day, month, weekday = texts
    days, special_days = _apart(day, r"l|lw|[0-9]{1,2}w")
    weekday = _named(weekday, WEEKDAYS, 0)
    weekdays, special_weekdays = _apart(weekday, r"[0-7]l|[0-7]#[1-5]")
    return _Columns(
        hours=_numbers(hour.split(","), 0, 23),
        minutes=_numbers(minute.split(","), 0, 59),
        seconds=_numbers(second.split(","), 0, 59),
        days=frozenset(_numbers(days, 1, 31)),
        special_days=special_days,
        months=frozenset(_numbers(_named(month, MONTHS, 1).split(","), 1, 12)),
        weekdays=frozenset(number % 7 for number in _numbers(weekdays, 0, 6)),
        special_weekdays=special_weekdays,
        both_days=day[0] == "*" or weekday[0] == "*",
        fixed_time=minute[0] != "*" and hour[0] != "*",
    )


def _named(text: str, names: tuple[str, ...], low: int) -> str:
    """Return a column with numbers for names; a range ends on a Sunday that is 7."""
    text = text.replace("-sun", "-7")
    for number, name in enumerate(names, start=low):
        text = text.replace(name, str(number))
    return text


def _apart(text: str, special: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the plain items of a column and its special ones."""
    items = text.split(",")
    found = tuple(item for item in items if re.fullmatch(special, item))
    return [item for item in items if item not in found], found


def _numbers(items: list[str], low: int, high: int) -> tuple[int, ...]:
    found: set[int] = set()
    for item in items:
        match = re.fullmatch(r"(?:\*|([0-9]+)(?:-([0-9]+))?)(?:/([0-9]+))?", item)
        if match is None:
            raise Unreadable(f"cron item {item}")
        begin, end, step = match.groups()
        first = low if begin is None else int(begin)
        last = first if begin and not step else high
        if end is not None:
            last = int(end)
        elif step:
            # A step begun on a Sunday that is 7 goes on from Sunday 0.
            first = first % 7 if high == 6 else first
        found.update(range(first, last + 1, int(step or 1)))
    return tuple(sorted(found))
