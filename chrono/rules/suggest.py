"""Other minutes at which a wanted cron could fire, and which of them have least to do.

A suggestion keeps the days of the wanted cron and how often it fires in an hour. Its
minutes move within their hour; where a part of the day is given, so does its time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from chrono.rules import cron, dialect
from chrono.rules.errors import BadSchedule, BadValue
from chrono.rules.instants import DAY, MINUTE, Millis
from chrono.rules.schedule import CronSchedule, next_after, occurrences

SPAN: Millis = 8 * DAY
"""How long the load is looked at: a week, and a day of room around the first fire."""
_DAY_MINUTES = 24 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A cron beside what else is due when it fires."""

    schedule: CronSchedule
    first: Millis
    """Its first fire in the stretch that was looked at."""
    busiest: int
    """The most runs that are due in a minute in which it fires."""
    mean: float
    """How many that are on average."""


def parse_clock(text: str, *, field: str) -> int:
    """Return the minute of the day of `01:30`. Raises BadValue."""
    match = re.fullmatch(r"([01][0-9]|2[0-3]):([0-5][0-9])", text)
    if match is None:
        raise BadValue(f"{field} is a time of day, as 01:30.", field=field)
    return int(match[1]) * 60 + int(match[2])


def start_of_look(wanted: CronSchedule, *, now: Millis) -> Millis:
    """Return from when on the load is looked at, a whole minute.

    For a cron that fires seldom that is shortly before it does. Raises BadSchedule
    where it does not fire any more.
    """
    first = next_after(wanted, now)
    if first is None:
        raise BadSchedule("It does not fire any more.", field="cron")
    return max(now, first - DAY) // MINUTE * MINUTE


def candidates(
    wanted: CronSchedule, *, between: tuple[int, int] | None = None
) -> Iterator[CronSchedule]:
    """Iterate over the other crons there are, those near to the wanted one first.

    ``between`` has the first and the last minute of the day that will do; the last may
    be before the first, and then midnight lies between them. Raises BadValue where an H
    has a minute of its own already, or a part of the day is given for a cron that fires
    more than once a day.
    """
    if dialect.has_hash(wanted.expression):
        raise BadValue("H picks a minute already: write one instead.", field="cron")
    columns = dialect.split(wanted.expression, seconds=wanted.seconds)
    at = 1 if wanted.seconds else 0
    reading = dialect.read(wanted.expression, seconds=wanted.seconds)
    minutes = cron.values(dialect.MINUTE, reading.minute)
    if between is None:
        for shift in _by_distance(range(-minutes[0], 60 - minutes[-1])):
            columns[at] = _written([minute + shift for minute in minutes])
            yield replace(wanted, expression=" ".join(columns))
        return
    hours = cron.values(dialect.HOUR, reading.hour)
    if len(minutes) > 1 or len(hours) > 1:
        raise BadValue(
            "earliest and latest are for a cron that fires once a day.",
            field="earliest",
        )
    time = hours[0] * 60 + minutes[0]
    first, last = between
    for number in range((last - first) % _DAY_MINUTES + 1):
        hour, minute = divmod((first + number) % _DAY_MINUTES, 60)
        if hour * 60 + minute != time:
            columns[at], columns[at + 1] = str(minute), str(hour)
            yield replace(wanted, expression=" ".join(columns))


def weigh(
    schedule: CronSchedule, *, start: Millis, due: Sequence[int]
) -> Suggestion | None:
    """Return a cron with its load; None where it does not fire in the stretch.

    ``due`` has how many runs are due in each minute from ``start`` on.
    """
    fires = list(occurrences(schedule, start - 1, start + len(due) * MINUTE - 1))
    if not fires:
        return None
    loads = [due[(fire - start) // MINUTE] for fire in fires]
    return Suggestion(
        schedule=schedule,
        first=fires[0],
        busiest=max(loads),
        mean=round(sum(loads) / len(loads), 1),
    )


def least(found: Sequence[Suggestion], *, count: int) -> list[Suggestion]:
    """Return the suggestions with the least load; equal ones stay in their order."""
    return sorted(found, key=lambda one: (one.busiest, one.mean))[:count]


def _by_distance(shifts: range) -> list[int]:
    return sorted((shift for shift in shifts if shift), key=lambda shift: abs(shift))


def _written(minutes: Sequence[int]) -> str:
    """Return the column of minutes: a list, or a step where that is shorter."""
    listed = ",".join(map(str, minutes))
    if len(minutes) < 3:
        return listed
    steps = {later - earlier for earlier, later in pairwise(minutes)}
    step = steps.pop()
    if steps or minutes[-1] + step < 60:
        return listed
    return f"{minutes[0]}-59/{step}"
