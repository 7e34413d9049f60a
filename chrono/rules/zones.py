"""Time zones as stretches of constant offset from UTC.

`zoneinfo` answers for one instant; what the clock changes are, it does not tell. They
are found here by looking at each day and halving those that begin and end with
different offsets, which is exact as long as no zone changes its offset twice within a
day. Since 1970 none has done so within six days.

Zone data comes from the pinned `tzdata` package alone, so that every process of a
cluster agrees on it.
"""

from __future__ import annotations

import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from importlib import metadata

from chrono.rules.errors import UnknownTimezone

zoneinfo.reset_tzpath(())

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400
_STRETCH = 388 * _DAY
"""How much of a zone is looked at and remembered at once."""
_LAST_SECOND = 253_402_128_000
"""9999-12-30T00:00:00Z; the local time of a later second may not exist in Python."""


def data_version() -> str:
    """Return the version of the zone data, as 2026.1."""
    return metadata.version("tzdata")


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch [start, end) of UTC seconds with one offset, in seconds.

    `before` and `after` are the offsets on either side; equal to `offset` where the
    stretch ends only because the look at the zone did.
    """

    start: int
    end: int
    offset: int
    before: int
    after: int


class Zone:
    """A time zone whose segments are found when asked for and then remembered."""

    __slots__ = ("_info", "_stretches", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._info = zoneinfo.ZoneInfo(name)
        self._stretches: dict[int, tuple[Segment, ...]] = {}

    def segment_at(self, second: int) -> Segment:
        """Return the segment that a UTC second lies in."""
        number = second // _STRETCH
        stretch = self._stretches.get(number)
        if stretch is None:
            stretch = self._stretches[number] = self._look(number)
        for segment in stretch:
            if second < segment.end:
                return segment
        raise AssertionError("a stretch covers its seconds")

    def offset_at(self, second: int) -> int:
        """Return local time minus UTC, in seconds, at a UTC second."""
        moment = _EPOCH + timedelta(seconds=min(second, _LAST_SECOND))
        offset = moment.astimezone(self._info).utcoffset()
        return offset // timedelta(seconds=1) if offset else 0

    def _look(self, number: int) -> tuple[Segment, ...]:
        first, end = number * _STRETCH, (number + 1) * _STRETCH
        before = offset = self.offset_at(first - 1)
        borders = [(first, offset)]
        for day in range(first - 1, end - 1, _DAY):
            next_offset = self.offset_at(day + _DAY)
            if next_offset != offset:
                borders.append((self._change(day, day + _DAY), next_offset))
                offset = next_offset
        if len(borders) > 1 and borders[1][0] == first:
            del borders[0]
        segments = []
        after_end = self.offset_at(end)
        for index, (start, offset) in enumerate(borders):
            last = index + 1 == len(borders)
            stop, after = (end, after_end) if last else borders[index + 1]
            segments.append(Segment(start, stop, offset, before, after))
            before = offset
        return tuple(segments)

    def _change(self, low: int, high: int) -> int:
        """Return the first second in (low, high] with the offset that `high` has."""
        target = self.offset_at(high)
        while high - low > 1:
            middle = (low + high) // 2
            if self.offset_at(middle) == target:
                high = middle
            else:
                low = middle
        return high


@lru_cache(maxsize=1024)
def load(name: str) -> Zone:
    """Return the zone of an IANA name, backward aliases included.

    Raises UnknownTimezone, with near names, for any other text.
    """
    if name not in _names():
        near = get_close_matches(name[:60], _names(), n=3)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise UnknownTimezone(
            f"{name[:60]} is not in the IANA time zone database.{hint}",
            field="timezone",
        )
    return Zone(name)


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())
