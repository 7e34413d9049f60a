"""The base of every error Chrono raises on purpose, and the errors of values.

A subclass is named as a fact, and its docstring is the message shown when none
is given. `code` is the stable word that machines read (the API's problem
document, `preview --json`); `field` names the input at fault, where there is one.
"""

from __future__ import annotations

import inspect
from typing import ClassVar


class ChronoError(Exception):
    """Something in Chrono could not be done."""

    code: ClassVar[str] = "chrono_error"

    def __init__(self, message: str | None = None, *, field: str | None = None) -> None:
        self.message = message or inspect.cleandoc(type(self).__doc__ or self.code)
        self.field = field
        super().__init__(self.message)


class BadValue(ChronoError):
    """The value is not one that is accepted here."""

    code = "bad_value"


class BadDuration(BadValue):
    """A duration is a number with a unit (250ms, 90s, 15m, 2h, 1d) or PT1H30M."""

    code = "bad_duration"


class BadInstant(BadValue):
    """An instant is an ISO 8601 date and time with a zone, as 2026-11-29T15:00:00Z."""

    code = "bad_instant"


class BadSchedule(BadValue):
    """The schedule is not valid."""

    code = "bad_schedule"


class BadCron(BadSchedule):
    """The cron expression is not valid."""

    code = "bad_cron"


class NeverFires(BadSchedule):
    """The schedule never fires."""

    code = "never_fires"


class UnknownTimezone(BadSchedule):
    """The time zone is not in the IANA time zone database."""

    code = "unknown_timezone"


class StuckSchedule(BadSchedule):
    """The next fire of the schedule is not later than the one before."""

    code = "stuck_schedule"


class IllegalMove(ChronoError):
    """A run cannot go from its state to that one."""

    code = "illegal_move"
