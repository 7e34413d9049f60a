"""A schedule as one English sentence: what its author should recognise."""

from __future__ import annotations

import calendar
from collections.abc import Sequence
from typing import assert_never

from chrono.rules import cron, dialect
from chrono.rules.dialect import Field, Reading
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND, Millis, format_instant
from chrono.rules.policy import OverlapPolicy, Policy
from chrono.rules.schedule import CronSchedule, FixedDelay, Interval, Once, Schedule

_MOST_TIMES = 6
"""How many times of day are written out."""
_WEEKDAYS = tuple(calendar.day_name[(number - 1) % 7] for number in range(7))
_MONTHS = tuple(calendar.month_name)
_NTH = ("", "first", "second", "third", "fourth", "fifth")
_UNITS = ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"), (SECOND, "second"))


def describe(schedule: Schedule) -> str:
    """Return the sentence for a valid schedule whose every H is resolved."""
    sentence = _sentence(schedule)
    ends_at = None if isinstance(schedule, Once) else schedule.ends_at
    starts_at = schedule.starts_at if isinstance(schedule, CronSchedule) else None
    if starts_at is not None:
        sentence = f"{sentence[:-1]}, from {format_instant(starts_at)} on."
    if ends_at is not None:
        sentence = f"{sentence[:-1]}, until {format_instant(ends_at)}."
    return sentence


def _sentence(schedule: Schedule) -> str:
    if isinstance(schedule, CronSchedule):
        reading = cron.compile_expression(
            schedule.expression, seconds=schedule.seconds
        ).reading
        parts = [_time(reading), _days(reading), _months(reading)]
        text = " ".join(part for part in parts if part)
        zone = "UTC" if schedule.timezone == "UTC" else f"{schedule.timezone} time"
        return f"{text[0].upper()}{text[1:]}, {zone}."
    if isinstance(schedule, Interval):
        anchor = format_instant(schedule.anchor)
        return f"Every {duration(schedule.every)}, counted from {anchor}."
    if isinstance(schedule, FixedDelay):
        return f"Each {duration(schedule.delay)} after the end of the run before."
    if isinstance(schedule, Once):
        return f"Once, at {format_instant(schedule.at)}."
    assert_never(schedule)


def missed(schedule: Schedule, policy: Policy) -> str:
    """Return what becomes of what a schedule missed, and of what is late."""
    if isinstance(schedule, FixedDelay):
        return "Nothing is missed: each run is counted from the one before."
    within = "" if policy.max_delay is None else _length(policy.max_delay)
    if policy.catchup_policy == "deadline":
        return f"What is at most {within} late runs, oldest first."
    text = {
        "skip": "None of what was missed runs.",
        "run_once": "Of what was missed the newest runs, and stands for all.",
        "run_all": "All that was missed runs, oldest first.",
    }[policy.catchup_policy]
    return f"{text} Nothing begins more than {within} late." if within else text


def overlapping(policy: OverlapPolicy, most: int | None) -> str:
    """Return what becomes of an occurrence while ``most`` runs are live."""
    if policy == "allow_all" and most is None:
        return "It runs whatever else is live."
    live = "another run is" if most in (None, 1) else f"{most} runs are"
    text = {
        "skip": "it does not run",
        "buffer_one": "one waits for its turn, and no more",
        "buffer_all": "all wait for their turn",
        "cancel_other": "the oldest is cancelled, and it runs once that is over",
        "terminate_other": "the oldest is ended at once, and it runs",
        "allow_all": "it does not run",
    }[policy]
    return f"While {live} live, {text}."


def limiting(policies: Policy) -> str:
    """Return how many runs may be under way and begin besides the job's own bound."""
    said = []
    key = policies.concurrency_key
    if key is not None:
        most = policies.concurrency_limit or 1
        said.append(f"Of the key {key} {_runs(most)} may be under way at once.")
    if policies.rate_limit is not None:
        rate = policies.rate_limit
        of = "the job" if key is None else "the key"
        then = "waits" if policies.on_limit == "wait" else "is skipped"
        said.append(
            f"{_runs(rate.limit).capitalize()} of {of} may begin in any "
            f"{duration(rate.period)}; what is above that {then}."
        )
    return " ".join(said) or "None besides."


def _runs(count: int) -> str:
    return "one run" if count == 1 else f"{count} runs"


def delivered(policy: Policy) -> str:
    """Return what becomes of a run whose worker is lost."""
    if policy.delivery == "at_most_once":
        return "At most once: a run whose worker is lost waits for a person."
    return "At least once: a run whose worker is lost begins again."


def failing(most: int | None) -> str:
    """Return what dead runs do to their job."""
    if most is None:
        return "However many runs die, it goes on."
    return (
        f"It is paused after {most} dead runs in a row."
        if most > 1
        else ("It is paused after a dead run.")
    )


def watching(policy: Policy) -> str:
    """Return what of a job is reported."""
    watched = (
        ("a run that has not begun {} after it was due", policy.late_after),
        ("an attempt of more than {}", policy.max_runtime),
        ("{} without a success", policy.max_time_since_success),
    )
    named = [text.format(_length(limit)) for text, limit in watched if limit]
    text = _list(named) or "nothing"
    return f"{text[0].upper()}{text[1:]}."


def noted(note: str) -> str:
    """Return the end of a sentence with what somebody noted, if anything."""
    if not note:
        return "."
    return f": {note}" if note[-1] in ".!?…" else f": {note}."


def _length(length: Millis) -> str:
    text = duration(length)
    return text if text[0].isdigit() else f"1 {text}"


def duration(length: Millis) -> str:
    """Return a duration as `90 seconds`, or `hour` for exactly one of a unit."""
    for size, unit in _UNITS:
        if length % size == 0:
            count = length // size
            return unit if count == 1 else f"{count} {unit}s"
    return f"{length} milliseconds"


def _time(reading: Reading) -> str:
    hours = _values(dialect.HOUR, reading.hour)
    minutes = _values(dialect.MINUTE, reading.minute)
    seconds = _values(dialect.SECOND, reading.second)
    if len(seconds) == 1 and len(hours) * len(minutes) <= _MOST_TIMES:
        tail = f":{seconds[0]:02}" if seconds[0] else ""
        return "at " + _list(
            [f"{hour:02}:{minute:02}{tail}" for hour in hours for minute in minutes]
        )
    if seconds == [0] and len(minutes) == 1 and len(hours) < 24 and _even(hours, 24):
        start = f" from {hours[0]:02}:00 on" if hours[0] else ""
        return f"every {hours[1] - hours[0]} hours{start}, at minute {minutes[0]}"
    return f"{_within_hour(minutes, seconds)} {_hours(hours, minutes)}".strip()


def _within_hour(minutes: Sequence[int], seconds: Sequence[int]) -> str:
    if seconds == [0]:
        return _pace("minute", minutes, 60)
    lead = _pace("second", seconds, 60)
    if len(minutes) < 60:
        return f"{lead} of {_pace('minute', minutes, 60).removeprefix('at ')}"
    return lead if _round(seconds, 60) else f"{lead} of every minute"


def _hours(hours: Sequence[int], minutes: Sequence[int]) -> str:
    of_every = "" if _round(minutes, 60) else "of every hour"
    if len(hours) == 24:
        return of_every
    if _run(hours):
        return f"{of_every} from {hours[0]:02}:00 to {hours[-1]:02}:59".strip()
    if _even(hours, 24):
        start = f" from {hours[0]:02}:00 on" if hours[0] else ""
        return f"of every {_ordinal(hours[1] - hours[0])} hour{start}"
    return f"of the hours {_list([str(hour) for hour in hours])}"


def _pace(unit: str, values: Sequence[int], size: int) -> str:
    """Return how often within its circle: `every 15 minutes`, `at minutes 5 and 20`."""
    if len(values) == size:
        return f"every {unit}"
    if _round(values, size):
        return f"every {values[1]} {unit}s"
    if len(values) > 2 and _run(values):
        return f"every {unit} from {values[0]} to {values[-1]}"
    if len(values) == 1:
        return f"at {unit} {values[0]}"
    return f"at {unit}s {_list([str(value) for value in values])}"


def _days(reading: Reading) -> str:
    of_month, of_week = _of_month(reading), _of_week(reading)
    if of_month and of_week:
        join = ", when that is" if reading.both_days else " and also"
        return f"{of_month}{join} {of_week}"
    if of_month or of_week:
        return of_month or of_week
    hours = len(_values(dialect.HOUR, reading.hour))
    return "every day" if hours < 24 and reading.month == "*" else ""


def _of_month(reading: Reading) -> str:
    days = _values(dialect.DAY_OF_MONTH, reading.day_of_month)
    named = []
    if reading.day_of_month and len(days) < 31:
        named = (
            [f"{_ordinal(days[0])} to {_ordinal(days[-1])}"]
            if len(days) > 2 and _run(days)
            else [_ordinal(day) for day in days]
        )
    if reading.last_day:
        named.append("last day")
    if reading.last_workday:
        named.append("last Monday-to-Friday day")
    named += [
        f"Monday-to-Friday day nearest to the {_ordinal(day)}"
        for day in reading.nearest_workday_to
    ]
    return f"on the {_list(named)} of the month" if named else ""


def _of_week(reading: Reading) -> str:
    named = []
    days = _values(dialect.DAY_OF_WEEK, reading.day_of_week)
    if reading.day_of_week and len(days) < 7:
        monday_first = sorted(days, key=lambda day: (day - 1) % 7)
        places = [(day - 1) % 7 for day in monday_first]
        named = (
            [f"{_WEEKDAYS[monday_first[0]]} to {_WEEKDAYS[monday_first[-1]]}"]
            if len(days) > 2 and _run(places)
            else [_WEEKDAYS[day] for day in monday_first]
        )
    named += [
        f"the {_NTH[nth]} {_WEEKDAYS[day]} of the month"
        for day, nth in reading.nth_weekdays
    ]
    named += [
        f"the last {_WEEKDAYS[day]} of the month" for day in reading.last_weekdays
    ]
    return f"on {_list(named)}" if named else ""


def _months(reading: Reading) -> str:
    months = _values(dialect.MONTH, reading.month)
    if len(months) == 12:
        return ""
    if len(months) > 2 and _run(months):
        return f"in {_MONTHS[months[0]]} to {_MONTHS[months[-1]]}"
    return f"in {_list([_MONTHS[month] for month in months])}"


def _values(field: Field, text: str) -> list[int]:
    mask = cron.mask(field, text)
    return [value for value in range(field.low, field.last + 1) if mask >> value & 1]


def _run(values: Sequence[int]) -> bool:
    return list(values) == list(range(values[0], values[-1] + 1))


def _even(values: Sequence[int], size: int) -> bool:
    """Tell whether the values go round their circle in equal steps."""
    if len(values) < 2 or size % len(values):
        return False
    step = size // len(values)
    return list(values) == list(range(values[0], size, step))


def _round(values: Sequence[int], size: int) -> bool:
    return _even(values, size) and values[0] == 0


def _ordinal(number: int) -> str:
    special = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}
    return f"{number}{special.get(number, 'th')}"


def _list(words: Sequence[str]) -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
