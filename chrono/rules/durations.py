"""Durations as text: `90s`, `15m`, `2h`, `1d`, `250ms`, or ISO 8601 `PT1H30M`."""

from __future__ import annotations

import re

from chrono.rules.errors import BadDuration
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND, Millis

LONGEST: Millis = 36_600 * DAY
"""The longest duration accepted: about a hundred years."""

_UNITS = {"ms": 1, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
_SHORT = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")
_ISO = re.compile(
    r"P(?:([0-9]{1,6})W)?(?:([0-9]{1,6})D)?"
    r"(?:T(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})(?:\.([0-9]{1,3}))?S)?)?"
)


def parse_duration(text: str, *, field: str | None = None) -> Millis:
    """Return a duration in milliseconds; `0s` is accepted.

    Raises BadDuration for anything else than one number with a unit or an
    ISO 8601 duration of weeks, days, hours, minutes and seconds.
    """
    if short := _SHORT.fullmatch(text):
        total = int(short[1]) * _UNITS[short[2]]
    elif (iso := _ISO.fullmatch(text)) and text[-1] not in "PT":
        weeks, days, hours, minutes, seconds = (
            int(part or 0) for part in iso.groups()[:5]
        )
        fraction = int((iso[6] or "0").ljust(3, "0"))
        total = (
            (weeks * 7 + days) * DAY
            + hours * HOUR
            + minutes * MINUTE
            + seconds * SECOND
            + fraction
        )
    else:
        raise BadDuration(field=field)
    if total > LONGEST:
        raise BadDuration("A duration is at most 36600d.", field=field)
    return total


def format_duration(duration: Millis) -> str:
    """Return the duration with the largest unit that divides it: 5400000 as 90m."""
    if duration < 0:
        raise BadDuration("A duration is not negative.")
    if duration == 0:
        return "0s"
    unit = next(u for u in ("d", "h", "m", "s", "ms") if duration % _UNITS[u] == 0)
    return f"{duration // _UNITS[unit]}{unit}"
