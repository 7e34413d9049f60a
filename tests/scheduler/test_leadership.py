"""Shares of the partitions, handed over and taken, on real advisory locks."""

import queue
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import psycopg
import pytest

from apps.runtime.process import Pulse
from apps.runtime.sessions import connect_hot, connect_leader
from apps.scheduler import leadership
from apps.scheduler.leadership import ENDED_AT_TRY, NAMED_AT_TRY, Change, Leadership
from apps.scheduler.store import FIRING
from chrono.rules.instants import HOUR
from tests.support import pg

ALL = frozenset(range(64))


class Candidate:
    """A leadership whose steps a test makes, and what it told its firing loop."""

    def __init__(self, dsn: str) -> None:
        self.held: set[int] = set()
        self.fences: dict[int, int] = {}
        self.leadership = Leadership(
            lambda: connect_leader(dsn, name="test leadership"),
            wake=lambda: None,
            pulse=Pulse("test"),
            firing=0,
            excuse=lambda: None,
        )

    def step(self) -> None:
        """Step once and follow what it says."""
        self.leadership.step()
        self.hear()

    def step_until(self, done: Callable[[], bool], *, within: float) -> bool:
        """Step until something has come about; return whether it did in so many s."""
        latest = time.monotonic() + within
        while not done() and time.monotonic() < latest:
            self.step()
        return done()

    def hear(self) -> None:
        """Follow what was said so far."""
        while True:
            try:
                change: Change = self.leadership.changes.get_nowait()
            except queue.Empty:
                return
            self.held -= change.lost
            self.held |= {term.part for term in change.gained}
            self.fences.update({term.part: term.fence for term in change.gained})


@pytest.fixture
def candidate(dsn: str) -> Iterator[Callable[[], Candidate]]:
    """Makes candidates on one database; all stop with the test."""
    made: list[Candidate] = []

    def make() -> Candidate:
        made.append(Candidate(dsn))
        return made[-1]

    yield make
    for each in made:
        each.leadership.stop()


def settle(*candidates: Candidate) -> None:
    """Step all in turn until nothing changes any more."""
    for _ in range(10):
        for each in candidates:
            each.step()


def test_one_alone_leads_all(candidate: Callable[[], Candidate]) -> None:
    alone = candidate()
    alone.step()
    assert alone.held == ALL


def test_three_share_evenly_and_nobody_shares_one(
    candidate: Callable[[], Candidate],
) -> None:
    three = [candidate() for _ in range(3)]
    three[0].step()
    settle(*three)
    shares = sorted(len(each.held) for each in three)
    assert sum(shares) == 64
    assert shares[0] >= 20
    assert shares[-1] <= 22
    assert frozenset().union(*(each.held for each in three)) == ALL


def test_what_a_dead_one_held_is_taken_under_a_higher_fence(
    dsn: str, candidate: Callable[[], Candidate]
) -> None:
    first, second = candidate(), candidate()
    first.step()
    settle(first, second)
    before = dict(first.fences)
    lost = set(first.held)
    with psycopg.connect(dsn, autocommit=True) as assassin:
        assassin.execute(
            "SELECT pg_terminate_backend(l.pid, 5000) FROM pg_locks l "
            "WHERE l.locktype = 'advisory' AND l.objid = %s AND l.granted",
            [min(lost)],
        )
    settle(second)
    assert second.held == ALL
    assert all(second.fences[part] > before[part] for part in lost)


def test_one_whose_session_died_holds_nothing_and_comes_back(
    dsn: str, candidate: Callable[[], Candidate]
) -> None:
    first = candidate()
    first.leadership.start()
    change = first.leadership.changes.get(timeout=10)
    assert {term.part for term in change.gained} == ALL
    with psycopg.connect(dsn, autocommit=True) as assassin:
        assassin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'test leadership'"
        )
    assert first.leadership.changes.get(timeout=10).lost == ALL
    again = first.leadership.changes.get(timeout=10)
    assert {term.part for term in again.gained} == ALL


def test_one_that_stops_frees_its_partitions_at_once(
    candidate: Callable[[], Candidate],
) -> None:
    first, second = candidate(), candidate()
    first.leadership.start()
    first.leadership.changes.get(timeout=10)
    first.leadership.stop()
    # At once is before the server would end a silent session, after four seconds.
    assert second.step_until(lambda: second.held == ALL, within=3)


HOLD = "SELECT FROM chrono_partition WHERE id = ANY(%s) FOR {}"


def hold(conn: psycopg.Connection, *parts: int, how: str = "UPDATE") -> int:
    """Hold these partitions' rows in an open transaction; return its backend pid."""
    conn.execute("BEGIN")
    conn.execute(HOLD.format(how), [list(parts)])
    return conn.info.backend_pid


def test_a_row_that_somebody_holds_keeps_nobody_from_the_others(
    candidate: Callable[[], Candidate], connect: Callable[..., psycopg.Connection]
) -> None:
    holder = connect()
    hold(holder, 5, 9)
    first = candidate()
    first.step()
    first.step()
    assert first.held == ALL - {5, 9}
    # Nobody else tries what is waited for.
    second = candidate()
    settle(first, second)
    assert len(first.held | second.held) == 62
    holder.execute("ROLLBACK")
    settle(first, second)
    assert first.held | second.held == ALL
    assert not first.held & second.held


def test_a_row_that_somebody_holds_for_long_is_set_aside_until_it_is_free(
    candidate: Callable[[], Candidate],
    connect: Callable[..., psycopg.Connection],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = candidate()
    first.step()
    fences = dict(first.fences)
    holder = connect()
    pid = hold(holder, 5)
    monkeypatch.setattr(leadership, "HELD_FOR", HOUR)
    first.step()
    assert first.held == ALL  # It may be an edit that is over in a moment.
    monkeypatch.setattr(leadership, "HELD_FOR", 0)
    first.step()
    assert first.held == ALL - {5}
    assert f"partition 5 is set aside: held by pid {pid}" in caplog.text
    # Its lock is kept: nobody else tries what is waited for.
    settle(first)
    second = candidate()
    second.step()
    assert 5 not in second.held
    holder.execute("ROLLBACK")
    settle(first, second)
    assert first.held | second.held == ALL
    fences_now = first.fences | second.fences
    assert fences_now[5] > fences[5]


def test_a_row_that_our_own_fire_holds_is_not_set_aside(
    candidate: Callable[[], Candidate],
    connect: Callable[..., psycopg.Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leadership, "HELD_FOR", 0)
    first = candidate()
    first.step()
    first.leadership._firing = hold(connect(), 5, how="SHARE")
    first.step()
    assert first.held == ALL


def test_a_firing_session_that_waits_for_a_lock_is_excused_and_the_holder_named(
    candidate: Callable[[], Candidate],
    connect: Callable[..., psycopg.Connection],
    background: Callable[..., Future[object]],
    second_connection: psycopg.Connection,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = candidate()
    excused: list[int] = []
    first.leadership._excuse = lambda: excused.append(1)
    holder, firing = connect(), connect()
    holder.execute("BEGIN; LOCK TABLE chrono_run")
    first.leadership._firing = firing.info.backend_pid
    first.step()
    assert not excused
    done = background(firing.execute, "SELECT FROM chrono_run")
    pg.wait_until_blocked(second_connection, firing.info.backend_pid)
    # When it looks for deadlocks, after a while, it waits for no lock for a moment.
    assert first.step_until(lambda: len(excused) == 2, within=5)
    named = [r.message for r in caplog.records if "firing waits" in r.message]
    assert len(named) == 1
    assert f"pid {holder.info.backend_pid} " in named[0]
    holder.execute("ROLLBACK")
    done.result(timeout=5)


def test_the_log_names_who_holds_a_row(
    candidate: Callable[[], Candidate],
    connect: Callable[..., psycopg.Connection],
    caplog: pytest.LogCaptureFixture,
) -> None:
    holder = connect()
    holder.execute("SET application_name = 'forgetful'")
    pid = hold(holder, 5)
    first = candidate()
    for _ in range(NAMED_AT_TRY):
        first.step()
    [line] = [record.message for record in caplog.records if "waits" in record.message]
    assert line.startswith(f"partition 5 waits for a leader: held by pid {pid} (forg")
    assert re.search(r"its transaction is \d+ ms old$", line)


def test_a_table_that_somebody_locks_costs_a_leader_none_of_its_terms(
    candidate: Callable[[], Candidate],
    connect: Callable[..., psycopg.Connection],
    dsn: str,
) -> None:
    first = candidate()
    first.step()
    over = first.leadership._held[5]
    locker = connect()
    locker.execute("BEGIN")
    locker.execute("LOCK TABLE chrono_partition")
    first.leadership._conn.execute("SET lock_timeout = '20ms'")
    first.leadership.retake([over])
    for _ in range(NAMED_AT_TRY):
        first.step()
    assert first.held == ALL
    locker.execute("ROLLBACK")
    first.step()
    assert first.fences[5] > over.fence


@pytest.mark.parametrize("own", [False, True])
def test_a_deposed_leader_s_firing_session_is_ended_and_our_own_is_not(
    dsn: str, candidate: Callable[[], Candidate], own: bool
) -> None:
    with connect_hot(dsn, name=FIRING) as firing:
        pid = hold(firing, 5, how="SHARE")
        first = candidate()
        first.leadership._firing = pid if own else 0
        for _ in range(ENDED_AT_TRY + 1):
            first.step()
        if own:
            assert first.held == ALL - {5}
            firing.execute("ROLLBACK")
        else:
            with pytest.raises(psycopg.OperationalError):
                firing.execute("SELECT 1")
        # Who is ended hears of it before its locks are free.
        assert first.step_until(lambda: first.held == ALL, within=5)
