"""What about a valid schedule is likely to surprise its author.

Each finding has a stable code; none of them stops a schedule from being saved.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from chrono.rules import cron, dialect, zones
from chrono.rules.instants import DAY, SECOND, Millis, format_instant
from chrono.rules.schedule import CronSchedule, FixedDelay, Interval, Schedule

_DELAY_TEXT = (
    "Each run is counted from the end of the one before, so only the next can be told; "
    "by the clock it fires less often than its length says."
)
PAYROLL = "payroll"
"""The tag of jobs for which a second payment is worse than none."""
_LOOK_AHEAD: Millis = 400 * DAY
"""How far ahead clock changes are looked at: each of a year at least once."""
_YEARS = range(2001, 2029)
"""Every combination of weekday and leap year there is."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One surprise: its stable code and what to tell the author."""

    code: str
    text: str


def findings(schedule: Schedule, after: Millis) -> list[Finding]:
    """Return what is surprising about a valid schedule, clock changes from an instant.

    Raises BadCron or UnknownTimezone for a schedule that is not valid.
    """
    if isinstance(schedule, Interval):
        return list(_drift(schedule))
    if isinstance(schedule, FixedDelay):
        return [Finding("fixed-delay", _DELAY_TEXT)]
    if not isinstance(schedule, CronSchedule):
        return []
    compiled = cron.compile_expression(schedule.expression, seconds=schedule.seconds)
    return [
        *_seconds(schedule),
        *_uneven_steps(compiled.reading),
        *_day_fields(compiled.reading),
        *_rare_months(compiled),
        *_clock_changes(schedule, compiled, after),
        *_top_of_hour(compiled.reading),
    ]


def of_delivery(tags: Collection[str], delivery: str) -> list[Finding]:
    """Return what may surprise about how often a job with these tags can run."""
    if PAYROLL not in tags or delivery == "at_most_once":
        return []
    return [
        Finding(
            "payroll-delivery",
            "It is tagged payroll, and a run whose worker is lost begins again: unless "
            "its target honours the idempotency key, somebody may be paid twice. With "
            "delivery at_most_once such a run waits for a person instead.",
        )
    ]


def _drift(schedule: Interval) -> Iterator[Finding]:
    days, rest = divmod(schedule.every, DAY)
    if rest:
        return
    length = "24 hours" if days == 1 else f"{days} times 24 hours"
    yield Finding(
        "interval-drifts",
        f"It counts {length}, whatever the wall clock shows: after a clock change it "
        "fires an hour earlier or later by local time. To keep the time of day, write "
        "a cron such as `0 8 * * *` and a timezone.",
    )


def _seconds(schedule: CronSchedule) -> Iterator[Finding]:
    if schedule.seconds:
        yield Finding(
            "six-field-seconds", "Six fields: the first is the second, not the last."
        )


def _uneven_steps(reading: dialect.Reading) -> Iterator[Finding]:
    columns = (
        (dialect.SECOND, reading.second),
        (dialect.MINUTE, reading.minute),
        (dialect.HOUR, reading.hour),
        (dialect.DAY_OF_MONTH, reading.day_of_month),
        (dialect.MONTH, reading.month),
        (dialect.DAY_OF_WEEK, reading.day_of_week),
    )
    for field, text in columns:
        for item in text.split(","):
            match = re.fullmatch(r"([0-9]+)-([0-9]+)/([0-9]+)", item)
            if match is None or int(match[2]) != field.last:
                continue
            low, step = int(match[1]), int(match[3])
            last = low + (field.last - low) // step * step
            wrap = field.last + 1 - field.low + low - last
            if field is dialect.DAY_OF_MONTH:
                if step > 1:
                    yield Finding(
                        "uneven-step",
                        f"The step /{step} starts again each month, so the distance "
                        "across its end differs.",
                    )
            elif wrap != step:
                yield Finding(
                    "uneven-step",
                    f"The step /{step} does not divide the {field.name}s evenly: "
                    f"from {last} to {low} it is {wrap}.",
                )


def _day_fields(reading: dialect.Reading) -> Iterator[Finding]:
    if not reading.both_days:
        yield Finding(
            "day-fields-or",
            "Both day fields are set: it fires on days that match either of them, "
            "not only on days that match both.",
        )


def _rare_months(compiled: cron.Compiled) -> Iterator[Finding]:
    months = [month for month in range(1, 13) if compiled.months >> month & 1]
    empty = {
        month
        for month in months
        for year in _YEARS
        if not compiled.days_of(year, month)
    }
    if not empty:
        return
    only_february = all(
        compiled.days_of(year, month) in (0, 1 << 29 if month == 2 else 0)
        for month in months
        for year in _YEARS
    )
    if only_february:
        yield Finding(
            "leap-day-only", "It fires on 29 February only: in leap years, not 2100."
        )
    else:
        listed = ", ".join(dialect.MONTH.names[month - 1] for month in sorted(empty))
        yield Finding(
            "skipped-months",
            f"Some months have no such day and are left out ({listed}); `L` is the "
            "last day of each month.",
        )


def _clock_changes(
    schedule: CronSchedule, compiled: cron.Compiled, after: Millis
) -> Iterator[Finding]:
    """Report the first gap and the first fold that hold a wall time of the schedule.

    Only those between its start and its end.
    """
    every_hour = compiled.hours == (1 << 24) - 1
    if every_hour and not compiled.fixed_time:
        return
    zone = zones.load(schedule.timezone)
    after = max(after, schedule.starts_at or 0)
    end = after + _LOOK_AHEAD
    if schedule.ends_at is not None:
        end = min(end, schedule.ends_at)
    end //= SECOND
    segment = zone.segment_at(after // SECOND)
    seen = set()
    while segment.end <= end:
        segment = zone.segment_at(segment.end)
        change = segment.offset - segment.before
        code = "dst-gap" if change > 0 else "dst-fold"
        if not change or code in seen:
            continue
        low = segment.start + min(segment.before, segment.offset)
        wall = compiled.next_wall(low - 1)
        if wall is not None and wall < low + abs(change):
            seen.add(code)
            yield Finding(code, _change_text(schedule, compiled, code, wall, segment))


def _change_text(
    schedule: CronSchedule,
    compiled: cron.Compiled,
    code: str,
    wall: int,
    segment: zones.Segment,
) -> str:
    local = format_instant(wall * SECOND)[:16].replace("T", " ")
    where = f"{local} in {schedule.timezone}"
    if code == "dst-gap":
        text = f"{where} does not exist (clocks go forward): "
        if not compiled.fixed_time:
            return text + "a schedule with `*` does not fire in the missing hour."
        if schedule.dst_gap == "skip":
            return text + "it is left out."
        moved = format_instant((segment.start + segment.offset) * SECOND)[11:16]
        return f"{text}it fires once at {moved} local time instead."
    text = f"{where} happens twice (clocks go back): "
    if not compiled.fixed_time:
        return text + "a schedule with `*` fires in both."
    words = {
        "first": "it fires the first time only.",
        "second": "it fires the second time only.",
        "both": "it fires both times.",
    }
    return text + words[schedule.dst_fold]


def _top_of_hour(reading: dialect.Reading) -> Iterator[Finding]:
    if reading.minute == "0" and reading.second == "0":
        yield Finding(
            "top-of-hour",
            "Many schedules fire at minute 0; `H` as the minute picks one for the job "
            "alone.",
        )
