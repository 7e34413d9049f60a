"""Ids: the run id that is the idempotency key, and time-ordered job ids.

A run id is a pure function of (job, nominal instant, attempt group). Whoever makes
the run, however often, makes the same id; the primary key then refuses the second.
Its 128 bits, most significant first:

    48 milliseconds of scheduled_for | 4 version (8) | 6 partition | 6 hash |
    2 variant (binary 10) | 61 hash | 1 extra

so ids sort by time, and the id alone finds the day leaf and the partition. The last bit
is set where the attempt group is 1 or more: what only such runs have is looked for by
nobody else.
"""

from __future__ import annotations

from hashlib import sha256
from struct import Struct
from uuid import UUID, SafeUUID

from chrono.rules.instants import DAY, Millis

_pack = Struct(">16sQI").pack
_new = object.__new__
_set = object.__setattr__
_UNKNOWN = SafeUUID.unknown
_LOW_62 = (1 << 62) - 1
_HASH_62 = _LOW_62 - 1
_FIXED = 8 << 76 | 2 << 62

PAST_ID = UUID(int=(1 << 128) - 1)
"""No id lies above it: from here a list of all begins that shows the highest first."""


def run_id(job_id: UUID, scheduled_for: Millis, attempt_group: int, part: int) -> UUID:
    """Return the id of the run of a job at a nominal instant.

    `attempt_group` is 0 for the first run and rises by one with each redrive;
    `part` is `partition_of(job_id)`, passed in because callers have it at hand.
    """
    digest = sha256(
        _pack(job_id.int.to_bytes(16), scheduled_for, attempt_group)
    ).digest()
    hashed = int.from_bytes(digest[:9]) >> 4
    return _uuid(
        scheduled_for << 80
        | _FIXED
        | part << 70
        | (hashed >> 62) << 64
        | hashed & _HASH_62
        | (attempt_group > 0)
    )


def is_extra(run_id: UUID) -> bool:
    """Return whether a run is one besides the schedule's own: manual, redriven, …"""
    return bool(run_id.int & 1)


def scheduled_for_of(run_id: UUID) -> Millis:
    """Return the nominal instant that a run id was made for."""
    return run_id.int >> 80


def partition_of_run(run_id: UUID) -> int:
    """Return the partition that a run id was made for."""
    return run_id.int >> 70 & 63


def day_bounds(day_start: Millis) -> tuple[UUID, UUID]:
    """Return the lowest id of the UTC day that begins here and of the next day."""
    return UUID(int=day_start << 80), UUID(int=(day_start + DAY) << 80)


def uuid7(now: Millis, randomness: bytes) -> UUID:
    """Return a UUID version 7 (RFC 9562) of this instant and 10 random bytes."""
    if len(randomness) < 10:
        raise ValueError("uuid7 needs at least 10 bytes of randomness")
    random = int.from_bytes(randomness[:10])
    return _uuid(
        now << 80 | 7 << 76 | (random >> 62 & 0xFFF) << 64 | 2 << 62 | random & _LOW_62
    )


def _uuid(value: int) -> UUID:
    # UUID(int=...) checks what cannot be wrong here and costs three times as much.
    made = _new(UUID)
    _set(made, "int", value)
    _set(made, "is_safe", _UNKNOWN)
    return made
