"""The text of a cron expression: what is accepted, what is refused with which offer.

Reading changes nothing but spelling: names in lower case, `5/15` as `5-59/15`. The
meaning is given to it by `chrono.rules.cron`. `docs/cron.md` has the table of the
dialect, and its tests are made from that table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from chrono.rules.errors import BadCron

LONGEST_EXPRESSION = 256

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

# fmt: off
_MONTHS = (
    "jan", "feb", "mar", "apr", "may", "jun",
    "jul", "aug", "sep", "oct", "nov", "dec",
)
# fmt: on
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One column of an expression."""

    name: str
    low: int
    high: int
    """The highest number that may be written."""
    last: int
    """The highest value there is, where `*` and `5/15` end; 7 is a second Sunday."""
    hashed: int
    """The highest value that H takes."""
    names: tuple[str, ...] = ()
    """Names of the values from `low` on."""


SECOND = Field(name="second", low=0, high=59, last=59, hashed=59)
MINUTE = Field(name="minute", low=0, high=59, last=59, hashed=59)
HOUR = Field(name="hour", low=0, high=23, last=23, hashed=23)
DAY_OF_MONTH = Field(name="day of month", low=1, high=31, last=31, hashed=28)
MONTH = Field(name="month", low=1, high=12, last=12, hashed=12, names=_MONTHS)
DAY_OF_WEEK = Field(
    name="day of week", low=0, high=7, last=6, hashed=6, names=_WEEKDAYS
)

FIELDS = (SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """An expression that was read: six plain columns, and the special days apart."""

    second: str
    minute: str
    hour: str
    day_of_month: str
    """The plain items, empty where there are only special ones."""
    month: str
    day_of_week: str
    """The plain items, empty where there are only special ones."""
    fixed_time: bool
    """Whether neither minute nor hour begins with `*`."""
    both_days: bool
    """Whether a day must match both day columns: one of them begins with `*`."""
    last_day: bool
    last_workday: bool
    nearest_workday_to: tuple[int, ...]
    nth_weekdays: tuple[tuple[int, int], ...]
    """Pairs (weekday, n), Sunday 0, n from 1."""
    last_weekdays: tuple[int, ...]


def read(expression: str, *, seconds: bool) -> Reading:
    """Return the expression taken apart, or raise BadCron with the form to write."""
    texts = split(expression, seconds=seconds)
    if not seconds:
        texts = ["0", *texts]
    second, minute, hour, day, month, weekday = texts
    days = _Days()
    reading = Reading(
        second=_column(SECOND, second),
        minute=_column(MINUTE, minute),
        hour=_column(HOUR, hour),
        day_of_month=_column(DAY_OF_MONTH, day, days.take_day_of_month),
        month=_column(MONTH, month),
        day_of_week=_column(DAY_OF_WEEK, weekday, days.take_day_of_week),
        fixed_time=not minute.startswith("*") and not hour.startswith("*"),
        both_days=day.startswith("*") or weekday.startswith("*"),
        last_day=days.last_day,
        last_workday=days.last_workday,
        nearest_workday_to=tuple(days.nearest),
        nth_weekdays=tuple(days.nth),
        last_weekdays=tuple(days.last_weekdays),
    )
    if reading.nth_weekdays and day != "*":
        raise _refused(
            DAY_OF_WEEK,
            "# cannot be combined with a day of month",
            f"`*` as the day of month, or a second job for `{day}`",
        )
    return reading


def split(expression: str, *, seconds: bool) -> list[str]:
    """Return the five or six columns in lower case, aliases written out."""
    if len(expression) > LONGEST_EXPRESSION:
        raise BadCron(
            f"A cron expression has at most {LONGEST_EXPRESSION} characters.",
            field="cron",
        )
    if not expression.isascii() or any(
        (char < " " and char != "\t") or char == "\x7f" for char in expression
    ):
        raise BadCron(
            "A cron expression is one line of plain ASCII text.", field="cron"
        )
    text = expression.strip().lower()
    if text.startswith("@"):
        text = _alias(text)
        if seconds:
            text = f"0 {text}"
    if zone := re.match(r"(?:cron_)?tz=(\S+)\s*(.*)", text):
        start = zone.start(1)
        name = expression.strip()[start : start + len(zone[1])]
        raise BadCron(
            f"The zone has a field of its own: write `{zone[2]}` as cron and "
            f"`{name}` as timezone.",
            field="cron",
        )
    texts = text.split()
    comment = next((at for at, one in enumerate(texts) if one.startswith("#")), 0)
    if comment:
        line = " ".join(texts[:comment])
        raise BadCron(
            f"A comment is no part of an expression: write `{line}`.", field="cron"
        )
    wanted = 6 if seconds else 5
    if len(texts) != wanted:
        raise _wrong_count(texts, seconds=seconds)
    return texts


def resolve_hashes(expression: str, job_id: UUID, *, seconds: bool) -> str:
    """Return the expression with each H replaced by what it is for this job.

    A value depends on the job's id, the column and the range only, so that neither a
    new name nor another column moves it. An expression without H comes back as it is.
    Raises BadCron for a malformed H or a wrong number of columns.
    """
    if not has_hash(expression):
        return expression
    texts = split(expression, seconds=seconds)
    fields = FIELDS if seconds else FIELDS[1:]
    return " ".join(
        ",".join(_resolve_item(field, item, job_id) for item in text.split(","))
        for field, text in zip(fields, texts, strict=True)
    )


def has_hash(expression: str) -> bool:
    """Return whether an item of the expression is an H form."""
    if "H" not in expression and "h" not in expression:
        return False
    return re.search(r"(?:^|[\s,])[hH](?![a-zA-Z])", expression) is not None


def _alias(text: str) -> str:
    if text in ALIASES:
        return ALIASES[text]
    if text.startswith("@reboot"):
        raise BadCron(
            "@reboot has no meaning for a cluster: start it from the service manager "
            "of the machine, or write a time such as `@daily`.",
            field="cron",
        )
    if text.startswith("@every"):
        raise BadCron("@every takes one duration: write `@every 90s`.", field="cron")
    if text.startswith("@at"):
        raise BadCron("A single instant is written as `run_at`.", field="cron")
    raise BadCron(
        f"{text[:20]} is not known; write one of "
        f"{', '.join(f'`{alias}`' for alias in ALIASES)}.",
        field="cron",
    )


def _wrong_count(texts: list[str], *, seconds: bool) -> BadCron:
    line = " ".join(texts)
    if seconds and len(texts) == 5:
        message = f"With seconds there are six fields, seconds first: write `0 {line}`."
    elif not seconds and len(texts) == 6:
        message = (
            "Six fields are accepted only with `seconds: true`, and then the first is "
            f"the second; without it write five, as `{' '.join(texts[1:])}`."
        )
    elif len(texts) == 7:
        message = (
            "A year field is not accepted: write "
            f"`{' '.join(texts[:6] if seconds else texts[1:6])}` and bound the job by "
            "`starts_at` and `ends_at`."
        )
    else:
        columns = FIELDS if seconds else FIELDS[1:]
        message = (
            f"There are {len(texts)} fields instead of {len(columns)}: write "
            f"{', '.join(column.name for column in columns)}, as in "
            f"`{'0 ' if seconds else ''}0 9 * * 1-5`."
        )
    return BadCron(message, field="cron")


class _Days:
    """The special days met while the two day columns are read."""

    def __init__(self) -> None:
        self.last_day = False
        self.last_workday = False
        self.nearest: list[int] = []
        self.nth: list[tuple[int, int]] = []
        self.last_weekdays: list[int] = []

    def take_day_of_month(self, item: str) -> bool:
        """Take the item if it is L, LW or 15W; return whether it was."""
        if item == "l":
            self.last_day = True
        elif item == "lw":
            self.last_workday = True
        elif item == "wl":
            raise _refused(DAY_OF_MONTH, "WL is not known", "`LW`")
        elif near := re.fullmatch(r"([0-9]{1,2})w", item):
            self.nearest.append(_number(DAY_OF_MONTH, near[1]))
        elif near := re.fullmatch(r"w([0-9]{1,2})", item):
            raise _refused(
                DAY_OF_MONTH, f"{item.upper()} is not known", f"`{near[1]}W`"
            )
        elif item.startswith("l-"):
            raise _refused(
                DAY_OF_MONTH, f"{item.upper()} is not accepted", "`L` or a day number"
            )
        else:
            return False
        return True

    def take_day_of_week(self, item: str) -> bool:
        """Take the item if it is 5L or 5#3; return whether it was."""
        if item == "l":
            raise _refused(
                DAY_OF_WEEK,
                "L needs a weekday",
                "`5L` for the last Friday, `6` for Saturday",
            )
        if last := re.fullmatch(r"l([0-7])", item):
            raise _refused(DAY_OF_WEEK, f"L{last[1]} is not accepted", f"`{last[1]}L`")
        if last := re.fullmatch(r"([0-7]|[a-z]{3})l", item):
            self.last_weekdays.append(_number(DAY_OF_WEEK, last[1]) % 7)
        elif nth := re.fullmatch(r"([0-9]+|[a-z]+)#([0-9]+)", item):
            if nth[2] not in ("1", "2", "3", "4", "5"):
                raise _refused(
                    DAY_OF_WEEK,
                    f"a month has no {nth[2]}th of a weekday",
                    f"`{nth[1]}#1` to `{nth[1]}#5`, or `{nth[1]}L` for the last",
                )
            self.nth.append((_number(DAY_OF_WEEK, nth[1]) % 7, int(nth[2])))
        else:
            return False
        return True


def _column(
    field: Field, text: str, special: Callable[[str], bool] | None = None
) -> str:
    """Return the plain items of a column, checked and written out."""
    items = text.split(",")
    return ",".join(
        _plain(field, item) for item in items if special is None or not special(item)
    )


def _plain(field: Field, item: str) -> str:
    match = re.fullmatch(r"(\*|[a-z0-9]+)(?:-([a-z0-9]+))?(?:/([0-9]+))?", item)
    if match is None or (match[1] == "*" and match[2]) or item == "r":
        raise _unreadable(field, item)
    step = _step(field, match[3])
    if match[1] == "*":
        return f"{field.low}-{field.last}{step}" if step else "*"
    if has_hash(match[1]):
        raise _needs_job(field)
    low = _number(field, match[1])
    if match[2] is None:
        if not step:
            return str(low)
        low = low % 7 if field is DAY_OF_WEEK else low
        return f"{low}-{field.last}{step}" if low < field.last else str(low)
    high = _number(field, match[2])
    if field is DAY_OF_WEEK and high == 0 and match[2] == "sun" and low > 0:
        high = 7
    if low == high:
        raise _refused(
            field, f"{item} is a range of one", f"`{match[1]}`, or `*` for every one"
        )
    if low > high or (field is DAY_OF_WEEK and low == 7):
        raise _refused(
            field,
            f"{item} runs backwards",
            f"`{_unwrapped(field, low, high, named=match[1].isalpha())}`",
        )
    return f"{low}-{high}{step}"


def _step(field: Field, text: str | None) -> str:
    if text is None:
        return ""
    # A step as long as the column fires once in it, which a number says better.
    if len(text) > 2 or not 1 <= int(text) <= field.high:
        unit = {"second": "s", "minute": "m", "hour": "h"}.get(field.name)
        offer = f"a step from 1 to {field.high}"
        if unit and text.isdigit() and len(text) <= 6 and int(text):
            offer += f", or the interval `@every {int(text)}{unit}`"
        raise _refused(field, f"/{text[:8]} is not a step it can take", offer)
    return f"/{int(text)}"


def _number(field: Field, text: str) -> int:
    if text in field.names:
        return field.low + field.names.index(text)
    if text.isdigit() and len(text) <= 2 and field.low <= int(text) <= field.high:
        return int(text)
    offer = f"`{field.low}` to `{field.high}`"
    if field.names:
        offer += f" or `{field.names[0]}` to `{field.names[-1]}`"
        if text[:3] in field.names:
            offer = f"`{text[:3]}`"
    raise _refused(field, f"{text[:12]} is not one of its values", offer)


def _unreadable(field: Field, item: str) -> BadCron:
    shown = item[:12] or "an empty item"
    if "?" in item:
        return _refused(field, "? is not accepted", "`*`")
    if re.match(r"r(?![a-z])", item) or "~" in item:
        return _refused(
            field, f"{shown.upper()} would be another time at each reading", "`H`"
        )
    if re.match(r"h(?![a-z])", item):
        return _needs_job(field)
    return _refused(
        field,
        f"{shown} cannot be read",
        f"`*`, `{field.last}`, `{field.low}-{field.last}`, `*/2` or a list with commas",
    )


def _needs_job(field: Field) -> BadCron:
    return BadCron(
        f"{field.name}: H is taken from the id of a job, and there is none here.",
        field="cron",
    )


def _unwrapped(field: Field, low: int, high: int, *, named: bool) -> str:
    """Return a wrapped range as a list, or as two ranges where the list is long."""
    values = (
        [*range(low % (field.last + 1), field.last + 1)] if low <= field.last else [0]
    )
    values += [v for v in range(field.low, high + 1) if v not in values]
    if len(values) > 7:
        return f"{_range(low, field.last)},{_range(field.low, high)}"
    if named:
        return ",".join(field.names[v - field.low].upper() for v in values)
    return ",".join(map(str, values))


def _range(low: int, high: int) -> str:
    return f"{low}-{high}" if low < high else str(low)


def _resolve_item(field: Field, item: str, job_id: UUID) -> str:
    if not has_hash(item):
        return item
    match = re.fullmatch(r"h(?:\(([0-9]{1,2})-([0-9]{1,2})\))?(?:/([0-9]+))?", item)
    if match is None:
        raise _refused(
            field, f"{item[:12].upper()} cannot be read", "`H`, `H/15` or `H(0-29)`"
        )
    low, high = field.low, field.hashed
    if match[1] is not None:
        low, high = int(match[1]), int(match[2])
        if not field.low <= low < high <= field.hashed:
            raise _refused(
                field,
                f"{item.upper()} is not a range H can take",
                f"one within `H({field.low}-{field.hashed})`",
            )
    digest = sha256(job_id.bytes + field.name.encode()).digest()
    drawn = int.from_bytes(digest)
    if match[3] is None:
        return str(low + drawn % (high - low + 1))
    step = int(_step(field, match[3])[1:])
    start = low + drawn % min(step, high - low + 1)
    return f"{start}-{high}/{step}" if start + step <= high else str(start)


def _refused(field: Field, problem: str, offer: str) -> BadCron:
    return BadCron(f"{field.name}: {problem}; write {offer}.", field="cron")
