"""The spread of a job is its own, stable, and inside its window."""

from hashlib import sha256
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.instants import DAY, HOUR, MINUTE
from chrono.rules.jitter import default_window, offset
from chrono.rules.schedule import CronSchedule, Interval, Once


@given(st.uuids(), st.integers(1, HOUR))
def test_an_offset_lies_in_the_window_and_never_changes(job_id, window):
    found = offset(job_id, window)
    assert 0 <= found < window
    assert found == int(sha256(job_id.bytes).hexdigest(), 16) % window


@given(st.uuids())
def test_no_window_is_no_offset(job_id):
    assert offset(job_id, 0) == 0


def test_jobs_spread_evenly_over_the_minute():
    seconds = [0] * 60
    for number in range(60_000):
        seconds[offset(UUID(int=number), MINUTE) // 1000] += 1
    assert max(seconds) < 2 * sum(seconds) / 60
    assert min(seconds) > 0


@pytest.mark.parametrize(
    ("schedule", "window"),
    [
        (CronSchedule("0 9 * * *"), MINUTE),
        (CronSchedule("*/5 * * * *"), MINUTE),
        (CronSchedule("* * * * *"), MINUTE // 2),
        (CronSchedule("*/30 * * * * *", seconds=True), 0),
        (Interval(every=DAY, anchor=0), 0),
        (Once(DAY), 0),
    ],
)
def test_the_default_window_follows_the_period(schedule, window):
    assert default_window(schedule) == window
