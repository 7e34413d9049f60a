"""Names and borders of time partitions: hourly timer buckets and daily leaves.

A bucket or leaf covers the half-open range [start, start + length) in UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

from chrono.rules.errors import BadValue
from chrono.rules.instants import DAY, HOUR, Millis, from_millis, to_millis

__all__ = [
    "DAY",
    "HOUR",
    "bucket_name",
    "bucket_range_from_name",
    "bucket_start",
    "day_name",
    "day_range_from_name",
    "day_start",
]

_BUCKET = re.compile(r"chrono_timer_([0-9]{4})([0-9]{2})([0-9]{2})([0-9]{2})")
_LEAF = re.compile(r"([a-z][a-z_]*)_([0-9]{4})([0-9]{2})([0-9]{2})")


def bucket_start(moment: Millis) -> Millis:
    """Return the start of the hour that an instant lies in."""
    return moment - moment % HOUR


def bucket_name(moment: Millis) -> str:
    """Return the table name of the hour an instant lies in: chrono_timer_2026112915."""
    return _bucket_name(moment // HOUR)


def bucket_range_from_name(name: str) -> tuple[Millis, Millis]:
    """Return the half-open range of a bucket, or raise BadValue for another name."""
    match = _BUCKET.fullmatch(name)
    if match is None:
        raise BadValue(f"{name} is not the name of a timer bucket.")
    year, month, day, hour = match.groups()
    start = _instant(name, year, month, day, hour)
    return start, start + HOUR


def day_start(moment: Millis) -> Millis:
    """Return the start of the UTC day that an instant lies in."""
    return moment - moment % DAY


def day_name(table: str, moment: Millis) -> str:
    """Return the name of a table's leaf for an instant's UTC day: run_20261129."""
    return f"{table}_{_day_digits(moment // DAY)}"


def day_range_from_name(name: str) -> tuple[str, Millis, Millis]:
    """Return (table, start, end) of a day leaf, or raise BadValue for another name."""
    match = _LEAF.fullmatch(name)
    if match is None:
        raise BadValue(f"{name} is not the name of a day leaf.")
    table, year, month, day = match.groups()
    start = _instant(name, year, month, day)
    return table, start, start + DAY


@lru_cache(maxsize=1024)
def _bucket_name(hour: int) -> str:
    return f"chrono_timer_{from_millis(hour * HOUR):%Y%m%d%H}"


@lru_cache(maxsize=1024)
def _day_digits(day: int) -> str:
    return f"{from_millis(day * DAY):%Y%m%d}"


def _instant(name: str, year: str, month: str, day: str, hour: str = "0") -> Millis:
    try:
        moment = datetime(int(year), int(month), int(day), int(hour), tzinfo=UTC)
    except ValueError:
        raise BadValue(f"{name} names no date.") from None
    return to_millis(moment)
