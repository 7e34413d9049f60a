"""Waiting that can be ended, and a watchdog that ends what hangs."""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from apps.runtime.process import (
    HUNG_EXIT_CODE,
    HUNG_S,
    WATCH_EVERY_S,
    Pulse,
    Waiter,
    Watchdog,
    rest_after,
)

LONG_S = 30.0  # The test's own time limit comes later: who waits this long has failed.
Background = Callable[..., Future[Any]]


@pytest.fixture
def waiter() -> Iterator[Waiter]:
    """A waiter, and the signals as they were when the test is over."""
    kept = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    yield Waiter()
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_a_wake_ends_the_present_wait(waiter: Waiter, background: Background) -> None:
    waiting = background(waiter.wait, LONG_S)
    waiter.wake()
    assert waiting.result(timeout=10) is False


def test_a_wake_between_two_waits_ends_the_next_one_only(
    waiter: Waiter, background: Background
) -> None:
    waiter.wake()
    waiter.wake()
    assert background(waiter.wait, LONG_S).result(timeout=10) is False
    began = background(waiter.wait, 0.05)
    assert began.result(timeout=10) is False  # Nobody woke it: it waited to its end.


def test_a_thousand_wakes_fill_no_pipe(waiter: Waiter, background: Background) -> None:
    for _ in range(100_000):
        waiter.wake()
    assert background(waiter.wait, LONG_S).result(timeout=10) is False


def test_a_descriptor_of_the_caller_ends_it_and_is_told(
    waiter: Waiter, background: Background
) -> None:
    ear, mouth = os.pipe()
    waiting = background(waiter.wait, LONG_S, ear)
    os.write(mouth, b"!")
    assert waiting.result(timeout=10) is True
    os.read(ear, 1)
    waiter.wake()
    assert waiter.wait(LONG_S, ear) is False
    os.close(ear)
    os.close(mouth)


def test_no_time_is_no_wait_but_a_look(waiter: Waiter) -> None:
    ear, mouth = os.pipe()
    assert waiter.wait(0) is False
    assert waiter.wait(-1.0, ear) is False
    os.write(mouth, b"!")
    assert waiter.wait(0, ear) is True
    os.close(ear)
    os.close(mouth)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_and_ends_the_wait(waiter: Waiter, number: int) -> None:
    waiter.stop_on_signals()
    sender = threading.Timer(0.05, os.kill, (os.getpid(), number))
    sender.start()
    assert waiter.wait(LONG_S) is False
    sender.join()
    assert waiter.stopping.is_set()


class Bench:
    """A watchdog whose looks a test makes, and what it did."""

    def __init__(self) -> None:
        self.pulse = Pulse("firing")
        self.exits: list[int] = []
        self.dog = Watchdog([self.pulse], exit_now=self.exits.append)

    def look_after(self, seconds: float, *, silent: bool = True) -> None:
        """Let so much time have passed in looks as the watchdog makes them."""
        while seconds > 0:
            self.dog._looked -= WATCH_EVERY_S
            if silent:
                self.pulse._beaten -= WATCH_EVERY_S
            self.dog.look()
            seconds -= WATCH_EVERY_S


def test_c12_a_loop_that_hangs_ends_the_process() -> None:
    bench = Bench()
    bench.pulse.armed = True
    bench.look_after(HUNG_S / 2)
    assert bench.exits == []
    bench.look_after(HUNG_S)
    assert bench.exits[0] == HUNG_EXIT_CODE


def test_a_loop_that_beats_goes_on() -> None:
    bench = Bench()
    bench.pulse.armed = True
    for _ in range(20):
        bench.look_after(2 * WATCH_EVERY_S)
        bench.pulse.beat()
    assert bench.exits == []


def test_a_loop_that_is_not_armed_may_be_silent() -> None:
    bench = Bench()
    bench.look_after(10 * HUNG_S)
    assert bench.pulse.silent_for() == 0.0
    assert bench.exits == []


def test_a_process_that_slept_as_a_whole_gets_its_time_again() -> None:
    bench = Bench()
    bench.pulse.armed = True
    bench.dog._looked -= 12.0
    bench.pulse._beaten -= 12.0
    bench.dog.look()
    assert bench.exits == []
    assert bench.pulse.silent_for() < HUNG_S
    bench.look_after(HUNG_S + WATCH_EVERY_S)
    assert bench.exits[0] == HUNG_EXIT_CODE


def test_it_says_whom_it_found_hung(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.pulse.armed = True
    with caplog.at_level(logging.CRITICAL, logger="chrono.process"):
        bench.look_after(HUNG_S + WATCH_EVERY_S)
    assert "firing made no progress" in caplog.text


def test_a_log_that_hangs_does_not_hold_the_watchdog() -> None:
    stuck = threading.Event()

    class Stuck(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            stuck.wait(LONG_S)

    log = logging.getLogger("chrono.process")
    handler = Stuck()
    log.addHandler(handler)
    try:
        bench = Bench()
        bench.pulse.armed = True
        bench.pulse._beaten -= HUNG_S + 1
        bench.dog.look()
        assert bench.exits == [HUNG_EXIT_CODE]
    finally:
        stuck.set()
        log.removeHandler(handler)


def test_the_thread_looks_by_itself() -> None:
    gone = threading.Event()
    pulse = Pulse("firing")
    dog = Watchdog([pulse], exit_now=lambda code: gone.set())
    pulse.armed = True
    pulse._beaten -= HUNG_S
    dog.start()
    assert gone.wait(LONG_S)
    pulse.armed = False


def test_rests_double_up_to_four_seconds_and_are_not_all_alike() -> None:
    for losses, longest in ((1, 0.25), (2, 0.5), (3, 1.0), (5, 4.0), (10_000, 4.0)):
        rests = [rest_after(losses) for _ in range(50)]
        assert all(longest / 2 <= rest < longest for rest in rests)
        assert len(set(rests)) > 1
