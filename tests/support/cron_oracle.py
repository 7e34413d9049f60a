"""A second opinion on when cron fires: look at every minute of UTC time.

Slow and plain on purpose, and written without a look at chrono.rules.cron: its own
matcher for columns of numbers, the wall clock from zoneinfo, and the rules for clock
changes read off that wall clock minute by minute.
"""

import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

zoneinfo.reset_tzpath(())

MINUTE = timedelta(minutes=1)
RANGES = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]


@dataclass(frozen=True, slots=True)
class Minute:
    """One minute of UTC time and what the wall clock shows."""

    at: int
    """Epoch milliseconds."""
    wall: tuple[int, int, int, int, int]
    """Minute, hour, day, month, weekday (Sunday 0)."""
    second_pass: bool
    """The wall clock showed this before, an hour ago or so."""
    first_pass: bool
    """The wall clock will show this again."""
    missing: tuple[tuple[int, int, int, int, int], ...]
    """What the wall clock jumped over just before."""


def changes(zone_name: str, year: int) -> Iterator[datetime]:
    """Iterate over a year's clock changes, each up to six hours late."""
    zone = zoneinfo.ZoneInfo(zone_name)
    moment = datetime(year, 1, 1, tzinfo=UTC)
    while moment.year == year:
        later = moment + timedelta(hours=6)
        if moment.astimezone(zone).utcoffset() != later.astimezone(zone).utcoffset():
            yield later
        moment = later


def minutes(zone_name: str, start: datetime, end: datetime) -> list[Minute]:
    """Return every minute of [start, end), in UTC."""
    zone = zoneinfo.ZoneInfo(zone_name)
    rows = []
    before = (start - MINUTE).astimezone(zone).replace(tzinfo=None)
    moment = start
    while moment < end:
        local = moment.astimezone(zone)
        wall = local.replace(tzinfo=None)
        missing = []
        skipped = before + MINUTE
        while skipped < wall:
            missing.append(_shown(skipped))
            skipped += MINUTE
        twice = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
        rows.append(
            Minute(
                at=int(moment.timestamp()) * 1000,
                wall=_shown(wall),
                second_pass=local.fold == 1,
                first_pass=twice and local.fold == 0,
                missing=tuple(missing),
            )
        )
        before = wall
        moment += MINUTE
    return rows


def fires(
    expression: str, rows: list[Minute], *, dst_gap: str = "shift", dst_fold: str
) -> list[int]:
    """Return the epoch milliseconds of the minutes at which an expression fires."""
    texts = expression.split()
    sets = [_values(text, *span) for text, span in zip(texts, RANGES, strict=True)]
    sets[4] = {day % 7 for day in sets[4]}
    minute_set, hour_set, day_set, month_set, weekday_set = sets
    both = texts[2][0] == "*" or texts[4][0] == "*"
    fixed = texts[0][0] != "*" and texts[1][0] != "*"

    def shows(wall: tuple[int, int, int, int, int]) -> bool:
        minute, hour, day, month, weekday = wall
        if minute not in minute_set or hour not in hour_set or month not in month_set:
            return False
        if both:
            return day in day_set and weekday in weekday_set
        return day in day_set or weekday in weekday_set

    out = []
    for row in rows:
        if row.missing and fixed and dst_gap == "shift" and len(row.missing) < 180:
            moved = any(shows(wall) for wall in row.missing)
        else:
            moved = False
        refused = fixed and (
            (row.second_pass and dst_fold == "first")
            or (row.first_pass and dst_fold == "second")
        )
        if moved or (shows(row.wall) and not refused):
            out.append(row.at)
    return out


def _shown(wall: datetime) -> tuple[int, int, int, int, int]:
    return wall.minute, wall.hour, wall.day, wall.month, wall.isoweekday() % 7


def _values(text: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for item in text.split(","):
        span, _, step = item.partition("/")
        if span == "*":
            first, last = low, high
        elif "-" in span:
            first, last = map(int, span.split("-"))
        else:
            first = int(span)
            last = high if step else first
        if (low, high) == (0, 7) and last == 7 and "-" not in span:
            last = 6 if first < 7 else 7
        found.update(range(first, last + 1, int(step or 1)))
    return found
