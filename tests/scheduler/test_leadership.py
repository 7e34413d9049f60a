"""Shares of the partitions, handed over and taken, on real advisory locks."""

import queue
from collections.abc import Callable, Iterator

import psycopg
import pytest

from apps.runtime.process import Pulse
from apps.runtime.sessions import connect_leader
from apps.scheduler.leadership import Change, Leadership

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
        )

    def step(self) -> None:
        """Step once and follow what it says."""
        self.leadership.step()
        self.hear()

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
            "SELECT pg_terminate_backend(l.pid) FROM pg_locks l "
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
    second.step()
    assert second.held == ALL
