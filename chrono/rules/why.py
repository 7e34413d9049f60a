"""Why a schedule does not fire at an instant: the field that does not match."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from chrono.rules import cron, dialect, words, zones
from chrono.rules.durations import format_duration
from chrono.rules.instants import SECOND, Millis, format_instant, from_millis
from chrono.rules.schedule import (
    CronSchedule,
    FixedDelay,
    Interval,
    Once,
    Schedule,
    next_after,
)

_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One field of a job that keeps an instant from being an occurrence."""

    field: str
    """The field of the job: cron, starts_at, interval …"""
    column: str | None
    """The column of a cron expression, as `hour`."""
    text: str


def is_occurrence(schedule: Schedule, moment: Millis) -> bool:
    """Return whether a schedule fires at an instant; of a fixed delay only the first
    can be told.
    """
    return next_after(schedule, moment - 1) == moment


def mismatches(schedule: Schedule, moment: Millis) -> list[Mismatch]:
    """Return why an instant is no occurrence of a valid schedule; empty if it is one.

    Every H of the expression is resolved.
    """
    if is_occurrence(schedule, moment):
        return []
    found = [*_bounds(schedule, moment), *_own(schedule, moment)]
    if found:
        return found
    # The wall clock matches, so it is what a clock change does to it.
    return [
        Mismatch(
            "dst_fold",
            None,
            "The clock goes back there, so this time comes twice; it fires in the "
            "other pass.",
        )
    ]


def _bounds(schedule: Schedule, moment: Millis) -> Iterator[Mismatch]:
    if isinstance(schedule, Once):
        return
    starts_at = schedule.starts_at if isinstance(schedule, CronSchedule) else None
    if starts_at is not None and moment < starts_at:
        text = f"The schedule begins at {format_instant(starts_at)}."
        yield Mismatch("starts_at", None, text)
    if schedule.ends_at is not None and moment > schedule.ends_at:
        text = f"The schedule ended at {format_instant(schedule.ends_at)}."
        yield Mismatch("ends_at", None, text)


def _own(schedule: Schedule, moment: Millis) -> Iterator[Mismatch]:
    if isinstance(schedule, CronSchedule):
        yield from _columns(schedule, moment)
    elif isinstance(schedule, Interval):
        yield from _interval(schedule, moment)
    elif isinstance(schedule, FixedDelay):
        delay = words.duration(schedule.delay)
        yield Mismatch(
            "fixed_delay", None, f"It fires {delay} after the end of the run before."
        )
    elif isinstance(schedule, Once):
        text = f"It fires once, at {format_instant(schedule.at)}."
        yield Mismatch("run_at", None, text)
    else:
        assert_never(schedule)


def _interval(schedule: Interval, moment: Millis) -> Iterator[Mismatch]:
    if moment < schedule.anchor:
        text = f"It counts from {format_instant(schedule.anchor)}."
        yield Mismatch("starts_at", None, text)
    elif off := (moment - schedule.anchor) % schedule.every:
        yield Mismatch(
            "interval",
            None,
            f"It fires every {words.duration(schedule.every)} from "
            f"{format_instant(schedule.anchor)} on; this is {format_duration(off)} "
            "after one of them.",
        )


def _columns(schedule: CronSchedule, moment: Millis) -> Iterator[Mismatch]:
    compiled = cron.compile_expression(schedule.expression, seconds=schedule.seconds)
    reading = compiled.reading
    wall = moment // SECOND + zones.load(schedule.timezone).offset_at(moment // SECOND)
    today = from_millis(wall * SECOND).date()
    second = wall % _DAY
    written = dialect.split(schedule.expression, seconds=schedule.seconds)
    if not schedule.seconds:
        written = ["0", *written]
    if moment % SECOND:
        yield Mismatch("cron", "second", "It fires at whole seconds.")
    for field, column, value, text in (
        (dialect.SECOND, reading.second, second % 60, written[0]),
        (dialect.MINUTE, reading.minute, second // 60 % 60, written[1]),
        (dialect.HOUR, reading.hour, second // 3600, written[2]),
        (dialect.MONTH, reading.month, today.month, written[4]),
    ):
        if value not in cron.values(field, column):
            yield Mismatch(
                "cron",
                field.name,
                f"The {field.name} in {schedule.timezone} is {value}; it fires at "
                f"{text}.",
            )
    if not compiled.days_of(today.year, today.month) >> today.day & 1:
        yield Mismatch(
            "cron",
            "day",
            f"{today:%A} {today.isoformat()} in {schedule.timezone} is no day of "
            f"day-of-month {written[3]} and day-of-week {written[5]}.",
        )
