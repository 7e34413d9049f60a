"""What a schedule will do, shown before it is saved."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from chrono.rules import lint, zones
from chrono.rules.errors import BadValue, ChronoError
from chrono.rules.instants import SECOND, Millis, format_instant
from chrono.rules.schedule import (
    CronSchedule,
    DstFold,
    DstGap,
    next_after,
    parse,
    resolve,
    validate,
)

MOST_FIRES = 1000

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
        if not 1 <= count <= MOST_FIRES:
            raise BadValue(f"count is from 1 to {MOST_FIRES}.", field="count")
        schedule = resolve(
            parse(
                expression,
                anchor=after,
                timezone=timezone,
                seconds=seconds,
                dst_gap=dst_gap,
                dst_fold=dst_fold,
            ),
            job_id,
        )
        validate(schedule)
        zone = zones.load(timezone)
        warnings = (
            lint.findings(schedule, after) if isinstance(schedule, CronSchedule) else []
        )
    except ChronoError as error:
        return {
            "error": {
                "code": error.code,
                "message": error.message,
                "field": error.field,
            }
        }
    fires: list[Millis] = []
    moment = next_after(schedule, after)
    while moment is not None and len(fires) < count:
        fires.append(moment)
        moment = next_after(schedule, moment)
    return {
        "fires": [format_instant(fire) for fire in fires],
        "local": [_local(fire, zone) for fire in fires],
        "warnings": [{"code": one.code, "text": one.text} for one in warnings],
    }


def _local(moment: Millis, zone: zones.Zone) -> str:
    offset = zone.offset_at(moment // SECOND)
    wall = format_instant(moment + offset * SECOND).removesuffix("Z")
    hours, minutes = divmod(abs(offset) // 60, 60)
    return f"{wall}{'-' if offset < 0 else '+'}{hours:02}:{minutes:02}"
