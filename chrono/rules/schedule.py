"""Schedules as values, and the instants at which they fire.

Three kinds: cron in a time zone, an interval counted from an anchor, and once.
`next_after` is the only way forward; whatever it returns is later than what it was
given, in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, assert_never, cast
from uuid import UUID

from chrono.rules import cron
from chrono.rules.durations import format_duration, parse_duration
from chrono.rules.errors import BadSchedule, NeverFires, StuckSchedule
from chrono.rules.instants import (
    DAY,
    LATEST,
    SECOND,
    Millis,
    checked,
    format_instant,
    parse_instant,
)

type DstGap = Literal["shift", "skip"]
type DstFold = Literal["first", "second", "both"]

SCHEDULE_FIELDS = frozenset(
    {
        "cron",
        "timezone",
        "seconds",
        "dst_gap",
        "dst_fold",
        "interval",
        "starts_at",
        "run_at",
    }
)
"""The fields of a job that schedule_from_json looks at."""

SHORTEST_INTERVAL: Millis = SECOND
LONGEST_INTERVAL: Millis = 3_660 * DAY

_REMEMBERED = 65_536
_PERIOD_FIRES = 32


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """A cron expression read as local time of a zone."""

    expression: str
    timezone: str = "UTC"
    seconds: bool = False
    """Whether the expression has six fields, seconds first."""
    dst_gap: DstGap = "shift"
    """What a fixed time does on a day that lacks it."""
    dst_fold: DstFold = "first"
    """Which of the two a fixed time takes on a day that has it twice."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Every so many milliseconds, counted from an anchor, which is the first fire."""

    every: Millis
    anchor: Millis


@dataclass(frozen=True, slots=True)
class Once:
    """One instant."""

    at: Millis


type Schedule = CronSchedule | Interval | Once

type _Key = tuple[str, str, bool, str, str, Millis]
_remembered: dict[_Key, Millis | None] = {}


def next_after(schedule: Schedule, moment: Millis) -> Millis | None:
    """Return the first fire strictly after an instant, or None if there is none.

    Remembered per (expression, zone, flags, instant): jobs that share an expression
    and fire together cost one computation. Raises BadCron or UnknownTimezone for a
    schedule that `validate` would refuse.
    """
    if isinstance(schedule, CronSchedule):
        key = (
            schedule.expression,
            schedule.timezone,
            schedule.seconds,
            schedule.dst_gap,
            schedule.dst_fold,
            moment,
        )
        try:
            return _remembered[key]
        except KeyError:
            pass
        if len(_remembered) >= _REMEMBERED:
            # Old instants are not asked for again, so nothing here is worth sorting.
            _remembered.clear()
        found = _remembered[key] = _cron_next(schedule, moment)
        return found
    if isinstance(schedule, Interval):
        if moment < schedule.anchor:
            return schedule.anchor
        passed = (moment - schedule.anchor) // schedule.every
        following = schedule.anchor + (passed + 1) * schedule.every
        return following if following < LATEST else None
    if isinstance(schedule, Once):
        return schedule.at if schedule.at > moment else None
    assert_never(schedule)


def latest_until(
    schedule: Schedule, after: Millis, until: Millis, limit: int
) -> tuple[Millis | None, int]:
    """Return the last fire in (after, until] and how many there are, at most `limit`.

    The fire is the last one even where the count stopped at `limit`. An interval of
    any length costs the same; cron costs one step for each fire counted.
    """
    if isinstance(schedule, CronSchedule):
        return _cron_latest(schedule, after, until, limit)
    if isinstance(schedule, Interval):
        first = next_after(schedule, after)
        if first is None or first > until:
            return None, 0
        steps = (until - first) // schedule.every
        return first + steps * schedule.every, min(steps + 1, limit)
    if isinstance(schedule, Once):
        if after < schedule.at <= until:
            return schedule.at, min(1, limit)
        return None, 0
    assert_never(schedule)


def occurrences(schedule: Schedule, after: Millis, until: Millis) -> Iterator[Millis]:
    """Iterate over the fires in (after, until], earliest first."""
    moment = _step(schedule, after)
    while moment is not None and moment <= until:
        yield moment
        moment = _step(schedule, moment)


def validate(schedule: Schedule) -> None:
    """Raise BadSchedule or a subclass unless the schedule can be saved.

    The verdict is a property of the schedule alone, never of the present time.
    """
    if isinstance(schedule, CronSchedule):
        if schedule.dst_gap not in ("shift", "skip"):
            raise BadSchedule("dst_gap is shift or skip.", field="dst_gap")
        if schedule.dst_fold not in ("first", "second", "both"):
            raise BadSchedule("dst_fold is first, second or both.", field="dst_fold")
        compiled = cron.compile_expression(
            schedule.expression, seconds=schedule.seconds
        )
        cron.check_zone(schedule.timezone)
        if compiled.never_fires_because is not None:
            raise NeverFires(
                f"It never fires: {compiled.never_fires_because}", field="cron"
            )
        if _cron_next(schedule, cron.REFERENCE) is None:
            raise NeverFires(
                f"It never fires in {schedule.timezone}: its only times lie in "
                "the hour that the clock change leaves out.",
                field="cron",
            )
    elif isinstance(schedule, Interval):
        if not SHORTEST_INTERVAL <= schedule.every <= LONGEST_INTERVAL:
            raise BadSchedule(
                "An interval is between "
                f"{format_duration(SHORTEST_INTERVAL)} and "
                f"{format_duration(LONGEST_INTERVAL)}.",
                field="interval",
            )
        checked(schedule.anchor, field="starts_at")
    elif isinstance(schedule, Once):
        checked(schedule.at, field="run_at")
    else:
        assert_never(schedule)


@lru_cache(maxsize=4096)
def period(schedule: Schedule) -> Millis | None:
    """Return the smallest distance between fires, or None for a one-shot.

    For cron the smallest between 32 fires in a row of a fixed year, clock changes
    left out; good for defaults and advice, not a bound.
    """
    if isinstance(schedule, Interval):
        return schedule.every
    if isinstance(schedule, Once):
        return None
    plain = replace(schedule, timezone="UTC")
    fires: list[Millis] = []
    moment: Millis | None = cron.REFERENCE
    while len(fires) < _PERIOD_FIRES:
        moment = _cron_next(plain, cast(Millis, moment))
        if moment is None:
            break
        fires.append(moment)
    return min((later - earlier for earlier, later in pairwise(fires)), default=None)


def parse(
    expression: str,
    *,
    anchor: Millis,
    timezone: str = "UTC",
    seconds: bool = False,
    dst_gap: DstGap = "shift",
    dst_fold: DstFold = "first",
) -> CronSchedule | Interval:
    """Return the schedule an expression stands for; `@every 90s` is an Interval.

    `anchor` is where such an interval begins to count. Nothing is validated yet.
    """
    every = cron.every(expression)
    if every is not None:
        return Interval(every=every, anchor=anchor)
    return CronSchedule(
        expression=expression,
        timezone=timezone,
        seconds=seconds,
        dst_gap=dst_gap,
        dst_fold=dst_fold,
    )


def resolve(schedule: Schedule, job_id: UUID) -> Schedule:
    """Return the schedule with every H of its expression replaced for this job."""
    if not isinstance(schedule, CronSchedule):
        return schedule
    expression = cron.resolve_hashes(
        schedule.expression, job_id, seconds=schedule.seconds
    )
    if expression == schedule.expression:
        return schedule
    return replace(schedule, expression=expression)


def schedule_to_json(schedule: Schedule) -> dict[str, Any]:
    """Return the schedule as the flat fields of a job."""
    if isinstance(schedule, CronSchedule):
        return {
            "cron": schedule.expression,
            "timezone": schedule.timezone,
            "seconds": schedule.seconds,
            "dst_gap": schedule.dst_gap,
            "dst_fold": schedule.dst_fold,
        }
    if isinstance(schedule, Interval):
        return {
            "interval": format_duration(schedule.every),
            "starts_at": format_instant(schedule.anchor),
        }
    if isinstance(schedule, Once):
        return {"run_at": format_instant(schedule.at)}
    assert_never(schedule)


def schedule_from_json(
    data: Mapping[str, Any],
    *,
    anchor: Millis | None = None,
    job_id: UUID | None = None,
) -> Schedule:
    """Return the schedule written in a job's fields; other fields are not looked at.

    Exactly one of `cron`, `interval`, `run_at` is given. An interval counts from
    `starts_at`, or from `anchor` where that is left out. With a job id every H of a
    cron expression is resolved. Raises BadSchedule or BadValue naming the field; the
    schedule itself is left to `validate`.
    """
    given = [name for name in ("cron", "interval", "run_at") if data.get(name)]
    if len(given) != 1:
        raise BadSchedule(
            "A job has exactly one of cron, interval and run_at.",
            field=given[1] if given else "cron",
        )
    kind = given[0]
    if kind == "run_at":
        return Once(at=parse_instant(_text(data, "run_at"), field="run_at"))
    if data.get("starts_at"):
        anchor = parse_instant(_text(data, "starts_at"), field="starts_at")
    if kind == "interval":
        every = parse_duration(_text(data, "interval"), field="interval")
        return Interval(every=every, anchor=_needed(anchor))
    expression = _text(data, "cron")
    every_or_none = cron.every(expression)
    if every_or_none is not None:
        return Interval(every=every_or_none, anchor=_needed(anchor))
    seconds = data.get("seconds", False)
    if not isinstance(seconds, bool):
        raise BadSchedule("seconds is true or false.", field="seconds")
    schedule = CronSchedule(
        expression=expression,
        timezone=_text(data, "timezone", "UTC"),
        seconds=seconds,
        dst_gap=cast(DstGap, _text(data, "dst_gap", "shift")),
        dst_fold=cast(DstFold, _text(data, "dst_fold", "first")),
    )
    return schedule if job_id is None else resolve(schedule, job_id)


def _text(data: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = data.get(name, default)
    if not isinstance(value, str):
        raise BadSchedule(f"{name} is text.", field=name)
    return value


def _needed(anchor: Millis | None) -> Millis:
    if anchor is None:
        raise BadSchedule("An interval needs starts_at.", field="starts_at")
    return anchor


def _step(schedule: Schedule, moment: Millis) -> Millis | None:
    # Long walks would only push out what the memory of next_after is for.
    if isinstance(schedule, CronSchedule):
        return _cron_next(schedule, moment)
    return next_after(schedule, moment)


def _cron_next(schedule: CronSchedule, moment: Millis) -> Millis | None:
    found = cron.next_fire(
        schedule.expression,
        moment,
        timezone=schedule.timezone,
        seconds=schedule.seconds,
        dst_gap=schedule.dst_gap,
        dst_fold=schedule.dst_fold,
    )
    if found is None or found >= LATEST:
        return None
    if found <= moment:
        # Cannot happen. If it did, a loop over fires would never end, so one job is
        # broken here rather than every job of its scheduler.
        raise StuckSchedule(field="cron")
    return found


def _cron_latest(
    schedule: CronSchedule, after: Millis, until: Millis, limit: int
) -> tuple[Millis | None, int]:
    last = None
    count = 0
    for moment in occurrences(schedule, after, until):
        if count == limit:
            return _cron_last(schedule, after, until), count
        last = moment
        count += 1
    return last, count


def _cron_last(schedule: CronSchedule, after: Millis, until: Millis) -> Millis | None:
    """Return the last fire in (after, until] by looking back further and further."""
    for back in (60 * SECOND, 3_600 * SECOND, DAY, 32 * DAY, 400 * DAY, until - after):
        start = max(after, until - back)
        last = max(occurrences(schedule, start, until), default=None)
        if last is not None or start == after:
            return last
    return None
