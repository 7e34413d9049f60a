"""No test leans on the day on which it was written.

The database's clock is today's, and a date that is ahead of it now will be behind it
once. So a date in a test is long past or far ahead; pure rules may have any.
"""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PURE = ("rules/", "cases/test_a_clock_changes.py")
PAST = "2026-11-30"
FAR = "2050"
DATE = re.compile(r"\b20\d\d-(?:0\d|1[0-2])(?:-\d\d)?\b")


def test_a_date_is_long_past_or_far_ahead():
    near = [
        f"{name}: {date}"
        for path in sorted(TESTS.rglob("*.py"))
        if not (name := path.relative_to(TESTS).as_posix()).startswith(PURE)
        for date in DATE.findall(path.read_text())
        if PAST < date < FAR
    ]
    assert near == []
