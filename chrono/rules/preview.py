"""What a schedule will do, shown before it is saved."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any
from uuid import UUID

from chrono.rules import cron, lint, words, zones
from chrono.rules.errors import BadValue, ChronoError
from chrono.rules.instants import LATEST, SECOND, Millis, format_instant
from chrono.rules.schedule import (
    CronSchedule,
    DstFold,
    DstGap,
    Schedule,
    occurrences,
    parse,
    resolve,
    validate,
)

MOST_FIRES = 1000

HASH_EXAMPLE = "hash-example"
_HASH_TEXT = (
    "H is drawn from the job's id: these times are an example until it has one."
)
_NO_JOB = UUID(int=0)
"""Stands in for the job's id where the job does not exist yet: H is then an example."""


def preview(
    expression: str,
    *,
    after: Millis,
    timezone: str = "UTC",
    count: int = 20,
    seconds: bool = False,
    dst_gap: DstGap = "shift",
    dst_fold: DstFold = "first",
    job_id: UUID = _NO_JOB,
) -> dict[str, Any]:
    """Return the next fires after an instant and what is surprising about them.

    The answer has `fires` (UTC), `local` (the same with the zone's offset) and
    `warnings` (each a `code` and a `text`), or instead `error` with `code`, `message`
    and `field`. `@every 90s` counts from `after`.
    """
    try:
        schedule = parse(
            expression,
            anchor=after,
            timezone=timezone,
            seconds=seconds,
            dst_gap=dst_gap,
            dst_fold=dst_fold,
        )
        zones.load(timezone)
        found = foresee(schedule, after=after, count=count, job_id=job_id)
    except ChronoError as error:
        return {
            "error": {
                "code": error.code,
                "message": error.message,
                "field": error.field,
            }
        }
    return {
        "fires": [format_instant(fire.at) for fire in found.fires],
        "local": [fire.local for fire in found.fires],
        "warnings": [
            {"code": one.code, "text": one.text}
            for one in found.warnings
            if one.code != HASH_EXAMPLE
        ],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """One fire to come."""

    at: Millis
    local: str
    """The same in the schedule's zone, with its offset."""
    note: str | None
    """What the clock change of that day does to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """What a schedule will do."""

    text: str
    """The schedule as a sentence."""
    fires: tuple[Fire, ...]
    warnings: tuple[lint.Finding, ...]


def foresee(
    schedule: Schedule, *, after: Millis, count: int, job_id: UUID | None = None
) -> Foreseen:
    """Return a schedule as a sentence, its next fires and what about it may surprise.

    Of a fixed delay there is one fire, the first. Without a job id, what H stands for
    is an example. Raises BadSchedule or a subclass, or BadValue for a count that is not
    1 to 1000.
    """
    if not 1 <= count <= MOST_FIRES:
        raise BadValue(f"count is from 1 to {MOST_FIRES}.", field="count")
    resolved = resolve(schedule, job_id or _NO_JOB)
    validate(resolved)
    warnings = lint.findings(resolved, after)
    if resolved != schedule and job_id is None:
        warnings.append(lint.Finding(HASH_EXAMPLE, _HASH_TEXT))
    moments = islice(occurrences(resolved, after, LATEST - 1), count)
    return Foreseen(
        text=words.describe(resolved),
        fires=tuple(_fire(resolved, moment) for moment in moments),
        warnings=tuple(warnings),
    )


def _fire(schedule: Schedule, moment: Millis) -> Fire:
    if not isinstance(schedule, CronSchedule):
        return Fire(at=moment, local=_local(moment, zones.load("UTC")), note=None)
    zone = zones.load(schedule.timezone)
    return Fire(
        at=moment, local=_local(moment, zone), note=_note(schedule, moment, zone)
    )


def _note(schedule: CronSchedule, moment: Millis, zone: zones.Zone) -> str | None:
    """Return what a clock change does to a fire: moved out of a gap, or twice there."""
    second = moment // SECOND
    segment = zone.segment_at(second)
    compiled = cron.compile_expression(schedule.expression, seconds=schedule.seconds)
    gap, fold = segment.offset - segment.before, segment.before - segment.offset
    wall = second + segment.offset
    if second == segment.start and gap > 0 and compiled.next_wall(wall - 1) != wall:
        missing = compiled.next_wall(segment.start + segment.before - 1)
        if missing is None:
            return None
        return f"{_clock(missing)} does not exist on this day: it fires here instead"
    if fold > 0 and second < segment.start + fold:
        return f"{_clock(wall)} comes twice on this day: this is the second"
    coming = segment.offset - segment.after
    if coming > 0 and second >= segment.end - coming:
        return f"{_clock(wall)} comes twice on this day: this is the first"
    return None


def _clock(wall: int) -> str:
    return format_instant(wall * SECOND)[11:16]


def _local(moment: Millis, zone: zones.Zone) -> str:
    offset = zone.offset_at(moment // SECOND)
    wall = format_instant(moment + offset * SECOND).removesuffix("Z")
    hours, minutes = divmod(abs(offset) // 60, 60)
    return f"{wall}{'-' if offset < 0 else '+'}{hours:02}:{minutes:02}"
