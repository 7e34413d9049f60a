"""Database time: measured, never back, and still in a test's hands."""

import itertools
import time
from collections.abc import Callable, Iterator

import pytest

from apps.runtime import store
from apps.runtime.clock import (
    JUMP,
    PROBE_EVERY,
    PROBE_SOON,
    WORST_BOUND,
    DatabaseClock,
    ManualClock,
    strayed,
)
from apps.runtime.sessions import Connection, connect_hot
from chrono.rules.instants import HOUR


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    """A hot session."""
    with connect_hot(dsn, name="test") as conn:
        yield conn


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what the next probes measure: pairs of offset and bound, the last stays."""

    def follow(*measured: tuple[float, float]) -> None:
        coming = itertools.chain(measured, itertools.repeat(measured[-1]))
        monkeypatch.setattr(
            DatabaseClock, "_measure", staticmethod(lambda conn: next(coming))
        )

    return follow


def offset_of(clock: DatabaseClock) -> float:
    return clock._offset


def test_it_shows_what_the_database_shows(conn: Connection) -> None:
    clock = DatabaseClock(conn)
    before = store.read_clock(conn)
    shown = clock.now()
    after = store.read_clock(conn)
    assert before - clock.bound_ms - 1 <= shown <= after + clock.bound_ms
    assert clock.override() is None


def test_the_probe_with_the_shortest_round_trip_counts(
    conn: Connection, probes: Callable[..., None]
) -> None:
    probes((900.0, 40.0), (1_000.0, 2.0), (1_100.0, 90.0), (700.0, 70.0), (800.0, 60.0))
    clock = DatabaseClock(conn)
    assert offset_of(clock) == 1_000.0
    assert clock.bound_ms == 2.0


def test_a_less_certain_probe_changes_nothing_but_the_bound(
    conn: Connection, probes: Callable[..., None]
) -> None:
    probes((1_000.0, 2.0))
    clock = DatabaseClock(conn)
    probes((1_030.0, 40.0))
    clock.probe(conn, probes=1)
    assert offset_of(clock) == 1_000.0
    assert clock.bound_ms > 2.0


def test_what_is_kept_ages_until_a_fresh_probe_is_better(
    conn: Connection, probes: Callable[..., None]
) -> None:
    probes((1_000.0, 2.0))
    clock = DatabaseClock(conn)
    probes((1_003.0, 4.0))
    for _ in range(5):
        clock._probed -= PROBE_EVERY
        clock.probe(conn, probes=1)
    assert offset_of(clock) == 1_003.0


def test_a_time_that_came_with_an_answer_is_as_good_as_its_round_trip(
    conn: Connection, probes: Callable[..., None]
) -> None:
    probes((1_000.0, 3.0))
    clock = DatabaseClock(conn)
    # Asked for between 50 and 51 ms, heard between 60 and 61: the offset is 1,005 to
    # within 6 ms.
    clock.hear(1_060.5, sent=50, heard=60)
    assert offset_of(clock) == 1_000.0
    assert 3.0 <= clock.bound_ms < 4.0
    clock.hear(1_056.5, sent=54, heard=55)
    assert offset_of(clock) == pytest.approx(1_001.5)
    assert clock.bound_ms == 1.5
    clock.hear(1_056.5 + HOUR, sent=54, heard=55)
    assert offset_of(clock) == pytest.approx(1_001.5 + HOUR)
    assert not clock.fit


def test_a_jump_is_believed_whatever_its_bound(
    conn: Connection, probes: Callable[..., None]
) -> None:
    probes((1_000.0, 2.0))
    clock = DatabaseClock(conn)
    probes((1_000.0 + HOUR, 200.0))
    clock.probe(conn, probes=1)
    assert offset_of(clock) == 1_000.0 + HOUR


def test_it_never_steps_back_by_what_is_no_jump(
    conn: Connection, probes: Callable[..., None]
) -> None:
    probes((1_000.0, 2.0))
    clock = DatabaseClock(conn)
    shown = clock.now()
    probes((1_000.0 - JUMP, 1.0))
    clock.probe(conn)
    assert clock.now() == shown
    probes((1_000.0 + 5_000, 1.0))
    clock.probe(conn)
    assert clock.now() >= shown + 5_000


@pytest.mark.parametrize("jump", [HOUR, -HOUR, -3_000, JUMP + 10])
def test_after_a_jump_it_is_unfit_until_three_probes_have_agreed(
    conn: Connection, probes: Callable[..., None], jump: float
) -> None:
    probes((HOUR * 2, 2.0))
    clock = DatabaseClock(conn)
    shown = clock.now()
    assert clock.fit
    probes((HOUR * 2 + jump, 2.0))
    seen = []
    for _ in range(4):
        clock.probe(conn, probes=1)
        seen.append(clock.fit)
    assert seen == [False, False, False, True]
    # The truth may lie behind what was shown.
    assert shown + jump - 1 <= clock.now() < shown + jump + 10_000


def test_another_jump_begins_the_count_anew(
    conn: Connection, probes: Callable[..., None]
) -> None:
    probes((1_000.0, 2.0))
    clock = DatabaseClock(conn)
    for offset in (5_000.0, 5_000.0, 9_000.0, 9_000.0, 9_000.0):
        probes((offset, 2.0))
        clock.probe(conn, probes=1)
        assert not clock.fit
    clock.probe(conn, probes=1)
    assert clock.fit


def test_what_two_bounds_explain_is_no_jump(
    conn: Connection, probes: Callable[..., None]
) -> None:
    probes((1_000.0, 100.0))
    clock = DatabaseClock(conn)
    probes((1_000.0 + JUMP + 300, 200.0))
    clock.probe(conn, probes=1)
    assert clock.fit


def test_a_clock_that_is_known_badly_is_unfit_until_it_is_known_better(
    conn: Connection, probes: Callable[..., None]
) -> None:
    probes((1_000.0, WORST_BOUND + 1))
    clock = DatabaseClock(conn)
    assert not clock.fit
    probes((1_000.0, WORST_BOUND))
    clock.probe(conn, probes=1)
    assert clock.fit


def test_a_clock_that_is_unfit_or_drifts_is_probed_sooner(
    conn: Connection, probes: Callable[..., None]
) -> None:
    probes((1_000.0, 2.0))
    clock = DatabaseClock(conn)
    assert PROBE_SOON < clock.probe_in() <= PROBE_EVERY
    for moved in (50.0, 5_000.0):
        probes((1_000.0 + moved, 2.0))
        clock.probe(conn, probes=1)
        assert 0 < clock.probe_in() <= PROBE_SOON


def test_a_monotonic_clock_that_goes_back_is_probed_at_once(conn: Connection) -> None:
    clock = DatabaseClock(conn)
    assert clock.probe_in() > 0
    clock._probed = time.monotonic() * 1000 + 3_000
    assert clock.probe_in() == 0


def test_a_jump_of_the_database_is_seen_before_the_next_probe(conn: Connection) -> None:
    clock = DatabaseClock(conn)
    since, told = clock.now(), store.read_clock(conn)
    assert not strayed(clock, told, since=since)
    for jump, seen in ((HOUR, True), (-HOUR, True), (JUMP // 2, False)):
        assert strayed(clock, told + int(jump), since=since) == seen
    assert not strayed(ManualClock(5), told, since=5)


def test_it_is_probed_again_when_the_last_probe_is_old(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = DatabaseClock(conn)
    asked: list[int] = []
    monkeypatch.setattr(clock, "probe", lambda conn, *, probes: asked.append(probes))
    clock.probe_if_old(conn)
    assert asked == []
    clock._probed = time.monotonic() * 1000 - PROBE_EVERY
    clock.probe_if_old(conn)
    assert asked == [1]


def test_a_shifted_clock_says_so_and_overrides_the_database_s(conn: Connection) -> None:
    plain, shifted = DatabaseClock(conn), DatabaseClock(conn, shift=HOUR)
    ahead = shifted.now() - plain.now()
    assert HOUR - 1_000 < ahead < HOUR + 1_000
    override = shifted.override()
    assert override is not None
    assert override >= plain.now() + HOUR - 1_000


def test_a_manual_clock_moves_by_hand_only() -> None:
    clock = ManualClock(5)
    assert (clock.now(), clock.now(), clock.override()) == (5, 5, 5)
    clock.moment = 9
    assert (clock.now(), clock.override()) == (9, 9)
