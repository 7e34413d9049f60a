"""The fixed offset by which a job starts after its nominal instant.

A stable offset instead of a draw: the same job is late by the same amount every
time, a preview can show it, and every scheduler computes the same `due_at`.
"""

from __future__ import annotations

from hashlib import sha256
from uuid import UUID

from chrono.rules.instants import MINUTE, Millis
from chrono.rules.schedule import CronSchedule, Schedule, period

WIDEST_DEFAULT: Millis = MINUTE
"""The widest window that a job has without asking for one."""


def offset(job_id: UUID, window: Millis) -> Millis:
    """Return SHA-256(job id) mod window: in [0, window), 0 where there is no window."""
    if window <= 0:
        return 0
    return int.from_bytes(sha256(job_id.bytes).digest()) % window


def default_window(schedule: Schedule) -> Millis:
    """Return the jitter window of a job that asks for none.

    A minute, or half the period if that is less, for cron with a period of a minute
    or more; 0 for intervals, one-shots and cron that fires more often.
    """
    if not isinstance(schedule, CronSchedule):
        return 0
    between = period(schedule)
    if between is None or between < MINUTE:
        return 0
    return min(WIDEST_DEFAULT, between // 2)
