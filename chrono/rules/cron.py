"""When a cron expression fires in a time zone, across clock changes.

croniter expands the columns (lists, ranges, steps, names) and nothing else. Ours is
the rest, each part for a fault seen in croniter 7.0:

- the dialect (`chrono.rules.dialect`): croniter takes equal ranges for the whole
  column, six columns for seconds last, and dates that do not exist for valid;
- how the two day columns combine, and L, LW, 15W, 5L, 5#3: in croniter it depends on
  the form whether they are joined by AND or OR;
- the search: on bit masks of wall-clock seconds, which costs a few microseconds where
  croniter's walk costs 50 to 300;
- clock changes: croniter fires a daily job of a repeated hour twice.

Wall time is handled as seconds since 1970 read as if it were UTC. The zone is walked
segment by segment of constant offset, in which wall time and UTC differ by a number:

- A schedule of *fixed time* (neither minute nor hour begins with `*`) fires once for
  each wall time. One that a forward change leaves out moves to the first instant after
  the gap (`shift`) or is left out (`skip`); several in one gap are one fire; a gap of
  three hours or more is a lost day rather than a clock change, and is not made up for.
  One that a backward change repeats fires in the first pass, the second, or both.
- Any other schedule fires whenever the wall clock matches, so it keeps its pace
  through both kinds of change.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from datetime import date
from functools import lru_cache

from croniter import croniter

from chrono.rules import dialect, zones
from chrono.rules.dialect import Field, resolve_hashes
from chrono.rules.durations import parse_duration
from chrono.rules.errors import BadCron, BadDuration
from chrono.rules.instants import Millis

__all__ = [
    "REFERENCE",
    "Compiled",
    "check_zone",
    "compile_expression",
    "every",
    "fires",
    "next_fire",
    "resolve_hashes",
    "values",
]

REFERENCE: Millis = 1_767_225_600_000
"""2026-01-01T00:00:00Z: where questions begin whose answer must not depend on now."""

_DAY = 86_400
_HORIZON = 50 * 366 * _DAY
"""How far the search goes. The rarest date of the calendar, a 29 February on one
weekday across a century that is no leap year, comes again within 40 years."""
_LOST_DAY = 3 * 3600
"""A gap from which on nothing is made up for."""
_FIRST_ORDINAL = date(1970, 1, 1).toordinal()
_LAST_YEAR = 9998


def next_fire(
    expression: str,
    moment: Millis,
    *,
    timezone: str,
    seconds: bool,
    dst_gap: str,
    dst_fold: str,
) -> Millis | None:
    """Return the first fire strictly after an instant, or None within 50 years.

    Raises BadCron or UnknownTimezone for what cannot be read.
    """
    compiled = compile_expression(expression, seconds=seconds)
    zone = zones.load(timezone)
    after = moment // 1000
    segment = zone.segment_at(after)
    searched, wall = 0, -1
    while segment.start <= after + _HORIZON:
        entered = segment.start > after
        if entered and dst_gap == "shift" and _made_up_for(compiled, segment):
            return segment.start * 1000
        low, high = _wall_range(compiled, segment, dst_fold)
        low = max(low, after + segment.offset)
        if not searched <= low < wall:
            found = compiled.next_wall(low)
            if found is None:
                return None
            searched, wall = low, found
        if wall < high:
            return (wall - segment.offset) * 1000
        segment = zone.segment_at(segment.end)
    return None


def fires(
    expression: str,
    after: Millis,
    until: Millis,
    *,
    timezone: str,
    seconds: bool,
    dst_gap: str,
    dst_fold: str,
) -> Iterator[Millis]:
    """Iterate over what `next_fire` finds one by one in (after, until].

    Many at once cost a tenth: a day is looked for once, not once for each of its fires.
    Ends, too, where 50 years have none. Raises BadCron or UnknownTimezone.
    """
    compiled = compile_expression(expression, seconds=seconds)
    zone = zones.load(timezone)
    first, last = after // 1000, until // 1000
    segment = zone.segment_at(first)
    reached = first
    while segment.start <= min(last, reached + _HORIZON):
        low, high = _wall_range(compiled, segment, dst_fold)
        low = max(low, first + segment.offset)
        entered = segment.start > first
        if entered and dst_gap == "shift" and _made_up_for(compiled, segment):
            reached = segment.start
            yield reached * 1000
            low = max(low, reached + segment.offset)
        for wall in compiled.walls(low, min(high, last + segment.offset + 1)):
            reached = wall - segment.offset
            yield reached * 1000
        segment = zone.segment_at(segment.end)


def _made_up_for(compiled: Compiled, segment: zones.Segment) -> bool:
    """Return whether a fixed time lies in the gap before a segment."""
    gap = segment.offset - segment.before
    if not compiled.fixed_time or not 0 < gap < _LOST_DAY:
        return False
    missing = compiled.next_wall(segment.start + segment.before - 1)
    return missing is not None and missing < segment.start + segment.offset


def _wall_range(
    compiled: Compiled, segment: zones.Segment, dst_fold: str
) -> tuple[int, int]:
    """Return the wall seconds (low, high) between which a segment's fires lie."""
    low = segment.start + segment.offset - 1
    high = segment.end + segment.offset
    if compiled.fixed_time:
        if dst_fold == "first" and segment.before > segment.offset:
            low = segment.start + segment.before - 1
        if dst_fold == "second" and segment.offset > segment.after:
            high = segment.end + segment.after
    return low, high


class Compiled:
    """An expression as bit masks, ready to be searched."""

    __slots__ = (
        "_both_days",
        "_days",
        "_first_of_day",
        "_first_second",
        "_minutes",
        "_seconds",
        "_special",
        "_weekdays",
        "fixed_time",
        "hours",
        "months",
        "never_fires_because",
        "reading",
    )

    def __init__(self, reading: dialect.Reading) -> None:
        self.reading = reading
        self._seconds = mask(dialect.SECOND, reading.second)
        self._minutes = mask(dialect.MINUTE, reading.minute)
        self.hours = mask(dialect.HOUR, reading.hour)
        self.months = mask(dialect.MONTH, reading.month)
        self._days = mask(dialect.DAY_OF_MONTH, reading.day_of_month)
        weekdays = mask(dialect.DAY_OF_WEEK, reading.day_of_week)
        self._weekdays = [
            sum(
                1 << day
                for day in range(1, 32)
                if weekdays >> ((first + day - 1) % 7) & 1
            )
            for first in range(7)
        ]
        self._both_days = reading.both_days
        self._special = bool(
            reading.last_day
            or reading.last_workday
            or reading.nearest_workday_to
            or reading.nth_weekdays
            or reading.last_weekdays
        )
        self._first_second = _lowest(self._seconds)
        self._first_of_day = (
            _lowest(self.hours) * 3600
            + _lowest(self._minutes) * 60
            + self._first_second
        )
        self.fixed_time = reading.fixed_time
        """Whether neither minute nor hour begins with `*`."""
        self.never_fires_because = self._why_never()
        """What is missing from the calendar, or None if the expression fires."""

    def next_wall(self, after: int) -> int | None:
        """Return the first matching wall second after one, or None within 50 years."""
        day, second = divmod(after + 1, _DAY)
        today = date.fromordinal(day + _FIRST_ORDINAL)
        year, month = today.year, today.month
        days = self.days_of(year, month)
        if days >> today.day & 1:
            found = self._next_of_day(second)
            if found is not None:
                return day * _DAY + found
        days &= -2 << today.day
        last_year = min(year + 50, _LAST_YEAR)
        while not days:
            month += 1
            if month > 12:
                year, month = year + 1, 1
                if year > last_year:
                    return None
            days = self.days_of(year, month)
        number = date(year, month, _lowest(days)).toordinal() - _FIRST_ORDINAL
        return number * _DAY + self._first_of_day

    def walls(self, low: int, high: int) -> Iterator[int]:
        """Iterate over the matching wall seconds in (low, high), as far as 50 years."""
        wall = self.next_wall(low)
        while wall is not None and wall < high:
            today = date.fromordinal(wall // _DAY + _FIRST_ORDINAL)
            month = (wall // _DAY - today.day) * _DAY
            days = self.days_of(today.year, today.month)
            for day in _bits(days >> today.day << today.day):
                midnight = month + day * _DAY
                if midnight >= high:
                    return
                start = max(0, wall - midnight)
                for second in self._seconds_of_day(start, high - midnight):
                    yield midnight + second
            wall = self.next_wall(month + days.bit_length() * _DAY - 1)

    def days_of(self, year: int, month: int) -> int:
        """Return the matching days of a month as a mask: bit 1 is the first."""
        if not self.months >> month & 1:
            return 0
        # Python counts weekdays from Monday 0, cron from Sunday 0.
        monday_first, length = calendar.monthrange(year, month)
        first = (monday_first + 1) % 7
        of_month, of_week = self._days, self._weekdays[first]
        if self._special:
            of_month |= self._special_days(first, length)
            of_week |= self._special_weekdays(first, length)
        both = of_month & of_week if self._both_days else of_month | of_week
        return both & ((2 << length) - 2)

    def _seconds_of_day(self, start: int, stop: int) -> Iterator[int]:
        """Iterate over the matching seconds of a day in [start, stop)."""
        minutes, seconds = _bits(self._minutes), _bits(self._seconds)
        for hour in _bits(self.hours >> start // 3600 << start // 3600):
            for minute in minutes:
                at = hour * 3600 + minute * 60
                if at >= stop:
                    return
                if at + 60 <= start:
                    continue
                for second in seconds:
                    if start <= at + second < stop:
                        yield at + second

    def _next_of_day(self, second: int) -> int | None:
        """Return the first matching second of a day from this one on."""
        hour, rest = divmod(second, 3600)
        if self.hours >> hour & 1:
            minute, rest = divmod(rest, 60)
            if self._minutes >> minute & 1 and (left := self._seconds >> rest):
                return second + _lowest(left)
            if left := self._minutes >> (minute + 1):
                minute += 1 + _lowest(left)
                return hour * 3600 + minute * 60 + self._first_second
        if left := self.hours >> (hour + 1):
            return (
                self._first_of_day
                + (hour + 1 + _lowest(left)) * 3600
                - (_lowest(self.hours) * 3600)
            )
        return None

    def _special_days(self, first: int, length: int) -> int:
        reading = self.reading
        days = 0
        if reading.last_day:
            days |= 1 << length
        if reading.last_workday:
            days |= 1 << _nearest_workday(length, first, length)
        for near in reading.nearest_workday_to:
            if near <= length:
                days |= 1 << _nearest_workday(near, first, length)
        return days

    def _special_weekdays(self, first: int, length: int) -> int:
        days = 0
        for weekday, nth in self.reading.nth_weekdays:
            days |= 1 << (1 + (weekday - first) % 7 + 7 * (nth - 1))
        for weekday in self.reading.last_weekdays:
            earliest = 1 + (weekday - first) % 7
            days |= 1 << (earliest + (length - earliest) // 7 * 7)
        return days

    def _why_never(self) -> str | None:
        # The calendar repeats after 400 years, so this is a proof, not a horizon.
        if any(
            self.days_of(year, month)
            for year in range(2000, 2400)
            for month in range(1, 13)
        ):
            return None
        months = [
            calendar.month_name[number]
            for number in range(1, 13)
            if self.months >> number & 1
        ]
        listed = " and ".join(
            part for part in (", ".join(months[:-1]), months[-1]) if part
        )
        verb = "has" if len(months) == 1 else "have"
        if self._special or not self.reading.day_of_week.startswith("*"):
            return f"{listed} {verb} no day that matches."
        return f"{listed} {verb} no {_ordinal(_lowest(self._days))}."


@lru_cache(maxsize=4096)
def compile_expression(expression: str, *, seconds: bool = False) -> Compiled:
    """Return the expression ready to be searched, or raise BadCron.

    An expression that can never fire is compiled and says so itself.
    """
    return Compiled(dialect.read(expression, seconds=seconds))


def check_zone(name: str) -> None:
    """Raise UnknownTimezone unless the name is in the IANA database."""
    zones.load(name)


def every(expression: str) -> Millis | None:
    """Return the milliseconds of an `@every 90s`, or None for any other expression."""
    match = re.fullmatch(r"\s*@every\s+(\S+)\s*", expression, re.IGNORECASE)
    if match is None:
        return None
    try:
        return parse_duration(match[1])
    except BadDuration:
        raise BadCron(
            "@every takes one duration: write `@every 90s`, `@every 15m` or "
            "`@every PT1H30M`.",
            field="cron",
        ) from None


_COLUMNS = (
    dialect.MINUTE,
    dialect.HOUR,
    dialect.DAY_OF_MONTH,
    dialect.MONTH,
    dialect.DAY_OF_WEEK,
    dialect.SECOND,
)
"""croniter's order."""


@lru_cache(maxsize=4096)
def mask(field: Field, text: str) -> int:
    """Return the values of a plain column as a bit mask."""
    if not text:
        return 0
    if text == "*":
        return (2 << field.last) - (1 << field.low)
    if text.isdigit():
        return 1 << (int(text) % 7 if field is dialect.DAY_OF_WEEK else int(text))
    index = _COLUMNS.index(field)
    columns = ["*"] * len(_COLUMNS)
    columns[index] = text
    expanded, _ = croniter.expand(" ".join(columns))
    if expanded[index] == ["*"]:
        return mask(field, "*")
    return sum(1 << int(value) for value in set(expanded[index]))


def values(field: Field, text: str) -> tuple[int, ...]:
    """Return the values of a plain column, lowest first."""
    return _bits(mask(field, text))


@lru_cache(maxsize=4096)
def _bits(number: int) -> tuple[int, ...]:
    """Return the numbers of the bits that are set, lowest first."""
    return tuple(bit for bit in range(number.bit_length()) if number >> bit & 1)


def _nearest_workday(day: int, first: int, length: int) -> int:
    """Return the Monday to Friday nearest to a day within its month."""
    weekday = (first + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def _ordinal(number: int) -> str:
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
