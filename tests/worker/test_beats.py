"""A beat brings the time; where it is too slow to tell it well, a probe does."""

import asyncio
import time
import uuid

import pytest

from apps.runs import worker_store
from apps.runtime.clock import WORST_BOUND, DatabaseClock
from apps.runtime.sessions import connect_hot
from apps.worker import beats
from apps.worker.beats import Beat


class Stopwatch:
    """A monotonic clock that tests move on beside the true one."""

    def __init__(self):
        self.ahead = 0

    def __call__(self):
        return int(time.monotonic() * 1000) + self.ahead


@pytest.fixture
def clock(dsn):
    with connect_hot(dsn, name="test") as conn:
        yield DatabaseClock(conn)


@pytest.fixture
def stopwatch():
    return Stopwatch()


@pytest.fixture
def beat(dsn, connect, clock, stopwatch):
    worker = uuid.uuid4()
    worker_store.register_worker(
        connect(), worker=worker, host="here", pid=1, concurrency=1, queues=["default"]
    )
    loop = asyncio.new_event_loop()
    made = Beat(
        url=dsn,
        worker=worker,
        clock=clock,
        monotonic=stopwatch,
        loop=loop,
        told=lambda _: None,
        trusted_until=0,
        horizon=0,
    )
    yield made
    made._hang_up()
    loop.close()


def test_the_time_of_a_beat_is_as_good_as_its_own_round_trip(
    beat, clock, stopwatch, monkeypatch
):
    connect = beats.connect_beat

    def slowly(*args, **options):
        stopwatch.ahead += 1_500
        return connect(*args, **options)

    monkeypatch.setattr(beats, "connect_beat", slowly)
    stopwatch.ahead = -1_500
    clock.bound_ms = WORST_BOUND
    beat.step()
    assert clock.bound_ms < 250
    assert clock.fit


def test_a_clock_that_slow_beats_leave_unfit_is_probed(
    beat, clock, stopwatch, monkeypatch
):
    renew = worker_store.beat_if_alive

    def slowly(*args, **options):
        news = renew(*args, **options)
        stopwatch.ahead += 2_000
        return news

    monkeypatch.setattr(worker_store, "beat_if_alive", slowly)
    clock.bound_ms = WORST_BOUND + 50
    assert not clock.fit
    beat.step()
    assert clock.bound_ms < WORST_BOUND
    assert clock.fit
