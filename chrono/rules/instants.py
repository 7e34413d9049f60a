"""Instants as whole milliseconds since 1970-01-01T00:00:00Z.

`Millis` is the only form in which an instant passes between modules: it compares,
subtracts and hashes without a zone, which aware datetimes do not (two local times
of a repeated hour are equal to Python though an hour apart).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from chrono.rules.errors import BadInstant

type Millis = int

SECOND: Millis = 1_000
MINUTE: Millis = 60_000
HOUR: Millis = 3_600_000
DAY: Millis = 86_400_000

EARLIEST: Millis = 0
"""1970-01-01T00:00:00Z; instants are later than or equal to it."""
LATEST: Millis = 253_370_764_800_000
"""9999-01-01T00:00:00Z; instants are earlier than it."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def to_millis(moment: datetime) -> Millis:
    """Return an aware datetime as epoch milliseconds, microseconds cut off.

    Raises BadInstant for a naive datetime and for one outside 1970..9998.
    """
    if moment.utcoffset() is None:
        raise BadInstant("An instant needs a zone; a naive datetime names none.")
    return checked((moment - _EPOCH) // _MS)


def to_millis_if_any(moment: datetime | None) -> Millis | None:
    """Return what :func:`to_millis` does, and None for None."""
    return None if moment is None else to_millis(moment)


def from_millis(moment: Millis) -> datetime:
    """Return epoch milliseconds as an aware datetime in UTC."""
    return _EPOCH + timedelta(milliseconds=moment)


def checked(moment: Millis, *, field: str | None = None) -> Millis:
    """Return the instant if it lies in 1970..9998, else raise BadInstant."""
    if not EARLIEST <= moment < LATEST:
        raise BadInstant("An instant lies in the years 1970 to 9998.", field=field)
    return moment


def parse_instant(text: str, *, field: str | None = None) -> Millis:
    """Return the instant written as ISO 8601 / RFC 3339 with a zone or 'Z'.

    Raises BadInstant for text without a zone, finer than a millisecond, outside
    1970..9998, or not a date and time at all.
    """
    try:
        if len(text) < len("2026-11-29T15:00") or not text.isascii():
            raise ValueError(text)
        if not text.isprintable():  # Python reads a NUL behind the Z.
            raise ValueError(text)
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadInstant(field=field) from None
    if moment.tzinfo is None:
        raise BadInstant(
            f"{text[:40]} names no zone: add Z or an offset as +02:00.", field=field
        )
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:
        raise BadInstant(
            "An instant lies in the years 1970 to 9998.", field=field
        ) from None
    if moment.microsecond % 1000:
        raise BadInstant("An instant is written in whole milliseconds.", field=field)
    return checked((moment - _EPOCH) // _MS, field=field)


def format_instant(moment: Millis) -> str:
    """Return an instant as 2026-11-29T15:00:00Z, with .250 only where it has ms."""
    precision = "milliseconds" if moment % SECOND else "seconds"
    naive = from_millis(moment).replace(tzinfo=None)
    return f"{naive.isoformat(timespec=precision)}Z"
