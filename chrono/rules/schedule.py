"""Schedules as values, and the instants at which they fire.

Four kinds: cron in a time zone, an interval counted from an anchor, a fixed delay
counted from the end of each run, and once. `next_after` is the only way forward;
whatever it returns is later than what it was given, in UTC.
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
        "fixed_delay",
        "starts_at",
        "ends_at",
        "run_at",
    }
)
"""The fields of a job that schedule_from_json looks at."""

KINDS = ("cron", "interval", "fixed_delay", "run_at")
"""The fields of which a job has exactly one."""

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
    starts_at: Millis | None = None
    """No fire before it."""
    ends_at: Millis | None = None
    """No fire after it."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Every so many milliseconds, counted from an anchor, which is the first fire."""

    every: Millis
    anchor: Millis
    ends_at: Millis | None = None
    """No fire after it."""


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """So many milliseconds after the end of the run before; the first at an anchor.

    Asked for the fire after an instant, it takes that for the end of a run.
    """

    delay: Millis
    anchor: Millis
    ends_at: Millis | None = None
    """No fire after it."""


@dataclass(frozen=True, slots=True)
class Once:
    """One instant."""

    at: Millis


type Schedule = CronSchedule | Interval | FixedDelay | Once

type _Key = tuple[str, str, bool, str, str, Millis]
_remembered: dict[_Key, Millis | None] = {}


def next_after(schedule: Schedule, moment: Millis) -> Millis | None:
    """Return the first fire strictly after an instant, or None if there is none.

    Remembered per (expression, zone, flags, instant): jobs that share an expression
    and fire together cost one computation. Raises BadCron or UnknownTimezone for a
    schedule that `validate` would refuse.
    """
    if isinstance(schedule, CronSchedule):
        if schedule.starts_at is not None:
            moment = max(moment, schedule.starts_at - 1)
        key = (
            schedule.expression,
            schedule.timezone,
            schedule.seconds,
            schedule.dst_gap,
            schedule.dst_fold,
            moment,
        )
        try:
            found = _remembered[key]
        except KeyError:
            if len(_remembered) >= _REMEMBERED:
                # Old instants are not asked for again: nothing here is worth sorting.
                _remembered.clear()
            found = _remembered[key] = _cron_fire(schedule, moment)
        return _bounded(found, schedule.ends_at)
    if isinstance(schedule, Interval):
        following = schedule.anchor
        if moment >= schedule.anchor:
            passed = (moment - schedule.anchor) // schedule.every
            following += (passed + 1) * schedule.every
        return _bounded(following, schedule.ends_at)
    if isinstance(schedule, FixedDelay):
        following = schedule.anchor
        if moment >= schedule.anchor:
            following = moment + schedule.delay
        return _bounded(following, schedule.ends_at)
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
        if schedule.ends_at is not None:
            until = min(until, schedule.ends_at)
        if first is None or first > until:
            return None, 0
        steps = (until - first) // schedule.every
        return first + steps * schedule.every, min(steps + 1, limit)
    if isinstance(schedule, FixedDelay):
        first = next_after(schedule, after)
        # Without a run there is no end to count the next one from.
        return (None, 0) if first is None or first > until else (first, min(1, limit))
    if isinstance(schedule, Once):
        if after < schedule.at <= until:
            return schedule.at, min(1, limit)
        return None, 0
    assert_never(schedule)


def occurrences(schedule: Schedule, after: Millis, until: Millis) -> Iterator[Millis]:
    """Iterate over the fires in (after, until], earliest first.

    Of a fixed delay only the first can be told.
    """
    if isinstance(schedule, CronSchedule):
        # Not by next_after: long walks would push out what its memory is for.
        yield from _cron_fires(schedule, after, until)
        return
    moment = next_after(schedule, after)
    while moment is not None and moment <= until:
        yield moment
        if isinstance(schedule, FixedDelay):
            return  # The next is counted from the end of this one's run.
        moment = next_after(schedule, moment)


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
        if not _ever_fires(
            schedule.expression,
            schedule.timezone,
            seconds=schedule.seconds,
            dst_gap=schedule.dst_gap,
            dst_fold=schedule.dst_fold,
        ):
            raise NeverFires(
                f"It never fires in {schedule.timezone}: its only times lie in "
                "the hour that the clock change leaves out.",
                field="cron",
            )
    elif isinstance(schedule, Interval):
        _check_length(schedule.every, "An interval", field="interval")
    elif isinstance(schedule, FixedDelay):
        _check_length(schedule.delay, "A fixed delay", field="fixed_delay")
    elif isinstance(schedule, Once):
        checked(schedule.at, field="run_at")
    else:
        assert_never(schedule)
    _check_bounds(schedule)


def period(schedule: Schedule) -> Millis | None:
    """Return the smallest distance between fires, or None for a one-shot.

    For cron the smallest between 32 fires in a row of a fixed year, clock changes
    left out; good for defaults and advice, not a bound.
    """
    if isinstance(schedule, Interval):
        return schedule.every
    if isinstance(schedule, FixedDelay):
        return schedule.delay
    if isinstance(schedule, Once):
        return None
    return _cron_period(schedule.expression, seconds=schedule.seconds)


@lru_cache(maxsize=4096)
def _cron_period(expression: str, *, seconds: bool) -> Millis | None:
    # In UTC no clock changes: what is done about gaps and folds makes no difference.
    plain = CronSchedule(expression, seconds=seconds)
    fires: list[Millis] = []
    moment: Millis | None = cron.REFERENCE
    while len(fires) < _PERIOD_FIRES:
        moment = _cron_fire(plain, cast(Millis, moment))
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


def kind_of(data: Mapping[str, Any]) -> str:
    """Return the field among a schedule's JSON that says when it fires."""
    return next(name for name in KINDS if data.get(name))


def schedule_to_json(schedule: Schedule) -> dict[str, Any]:
    """Return the schedule as the flat fields of a job."""
    if isinstance(schedule, CronSchedule):
        return {
            "cron": schedule.expression,
            "timezone": schedule.timezone,
            "seconds": schedule.seconds,
            "dst_gap": schedule.dst_gap,
            "dst_fold": schedule.dst_fold,
            **_bounds_to_json(schedule.starts_at, schedule.ends_at),
        }
    if isinstance(schedule, Interval):
        return {
            "interval": format_duration(schedule.every),
            **_bounds_to_json(schedule.anchor, schedule.ends_at),
        }
    if isinstance(schedule, FixedDelay):
        return {
            "fixed_delay": format_duration(schedule.delay),
            **_bounds_to_json(schedule.anchor, schedule.ends_at),
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

    Exactly one of `cron`, `interval`, `fixed_delay`, `run_at` is given. An interval
    counts from `starts_at`, or from `anchor` where that is left out; so does a fixed
    delay. With a job id every H of a cron expression is resolved. Raises BadSchedule or
    BadValue naming the field; the schedule itself is left to `validate`.
    """
    if not isinstance(data, Mapping):
        raise BadSchedule("A schedule is an object with named fields.")
    given = [name for name in KINDS if data.get(name)]
    if len(given) != 1:
        raise BadSchedule(
            "A job has exactly one of cron, interval, fixed_delay and run_at.",
            field=given[1] if given else "cron",
        )
    kind = given[0]
    if kind == "run_at":
        return Once(at=parse_instant(_text(data, "run_at"), field="run_at"))
    starts_at = _instant(data, "starts_at")
    ends_at = _instant(data, "ends_at")
    anchor = anchor if starts_at is None else starts_at
    if kind == "fixed_delay":
        delay = parse_duration(_text(data, "fixed_delay"), field="fixed_delay")
        return FixedDelay(delay=delay, anchor=_anchor(anchor), ends_at=ends_at)
    if kind == "interval":
        every = parse_duration(_text(data, "interval"), field="interval")
        return _interval(every, anchor, ends_at)
    expression = _text(data, "cron")
    every_or_none = cron.every(expression)
    if every_or_none is not None:
        return _interval(every_or_none, anchor, ends_at)
    seconds = data.get("seconds", False)
    if not isinstance(seconds, bool):
        raise BadSchedule("seconds is true or false.", field="seconds")
    schedule = CronSchedule(
        expression=expression,
        timezone=_text(data, "timezone", "UTC"),
        seconds=seconds,
        dst_gap=cast(DstGap, _text(data, "dst_gap", "shift")),
        dst_fold=cast(DstFold, _text(data, "dst_fold", "first")),
        starts_at=starts_at,
        ends_at=ends_at,
    )
    return schedule if job_id is None else resolve(schedule, job_id)


def _text(data: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = data.get(name, default)
    if not isinstance(value, str):
        raise BadSchedule(f"{name} is text.", field=name)
    return value


def _interval(every: Millis, anchor: Millis | None, ends_at: Millis | None) -> Interval:
    if every <= 0:
        # Unlike one that is merely too short, it cannot even be counted with.
        raise BadSchedule("An interval is longer than 0s.", field="interval")
    return Interval(every=every, anchor=_anchor(anchor), ends_at=ends_at)


def _anchor(anchor: Millis | None) -> Millis:
    if anchor is None:
        raise BadSchedule("An interval needs starts_at.", field="starts_at")
    return anchor


def _instant(data: Mapping[str, Any], name: str) -> Millis | None:
    return parse_instant(_text(data, name), field=name) if data.get(name) else None


def _bounds_to_json(starts_at: Millis | None, ends_at: Millis | None) -> dict[str, str]:
    bounds = {"starts_at": starts_at, "ends_at": ends_at}
    return {
        name: format_instant(moment)
        for name, moment in bounds.items()
        if moment is not None
    }


def _check_length(length: Millis, what: str, *, field: str) -> None:
    if not SHORTEST_INTERVAL <= length <= LONGEST_INTERVAL:
        raise BadSchedule(
            f"{what} is between {format_duration(SHORTEST_INTERVAL)} and "
            f"{format_duration(LONGEST_INTERVAL)}.",
            field=field,
        )


def _check_bounds(schedule: Schedule) -> None:
    """Refuse an end before the start; that no fire lies between them is no error."""
    if isinstance(schedule, Once):
        return
    if isinstance(schedule, CronSchedule):
        starts_at = schedule.starts_at
    else:
        starts_at = schedule.anchor
    if starts_at is not None:
        checked(starts_at, field="starts_at")
    if schedule.ends_at is None:
        return
    checked(schedule.ends_at, field="ends_at")
    if starts_at is not None and schedule.ends_at < starts_at:
        raise BadSchedule("ends_at lies before starts_at.", field="ends_at")


def _bounded(moment: Millis | None, ends_at: Millis | None) -> Millis | None:
    if moment is None or moment >= LATEST:
        return None
    return moment if ends_at is None or moment <= ends_at else None


def _cron_fires(
    schedule: CronSchedule, after: Millis, until: Millis
) -> Iterator[Millis]:
    if schedule.starts_at is not None:
        after = max(after, schedule.starts_at - 1)
    for moment in cron.fires(
        schedule.expression,
        after,
        min(until, LATEST - 1 if schedule.ends_at is None else schedule.ends_at),
        timezone=schedule.timezone,
        seconds=schedule.seconds,
        dst_gap=schedule.dst_gap,
        dst_fold=schedule.dst_fold,
    ):
        _check_later(moment, after)
        yield moment
        after = moment


@lru_cache(maxsize=4096)
def _ever_fires(
    expression: str, timezone: str, *, seconds: bool, dst_gap: DstGap, dst_fold: DstFold
) -> bool:
    schedule = CronSchedule(expression, timezone, seconds, dst_gap, dst_fold)
    return _cron_fire(schedule, cron.REFERENCE) is not None


def _cron_fire(schedule: CronSchedule, moment: Millis) -> Millis | None:
    """Return the next fire of the expression itself, whatever the bounds."""
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
    _check_later(found, moment)
    return found


def _check_later(found: Millis, moment: Millis) -> None:
    if found <= moment:
        # Cannot happen. If it did, a loop over fires would never end, so one job is
        # broken here rather than every job of its scheduler.
        raise StuckSchedule(field="cron")


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
    """Return the last fire in (after, until], by halving where it can lie."""
    last = None
    high = until
    while after < high:
        middle = (after + high) // 2
        found = next(occurrences(schedule, middle, until), None)
        if found is None:
            high = middle
        else:
            last = after = found
    return last
