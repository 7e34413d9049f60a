"""What becomes of missed occurrences: exact rows, whatever the policy and the kills."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from apps.jobs.commands import patch_job
from apps.runtime.clock import ManualClock
from apps.runtime.sessions import Connection
from apps.scheduler import store
from apps.scheduler.dispatcher import Dispatcher
from apps.scheduler.load import OVERDUE_PARTS
from chrono.rules import jitter
from chrono.rules.instants import (
    HOUR,
    MINUTE,
    SECOND,
    Millis,
    format_instant,
    to_millis,
)
from chrono.rules.keys import run_id
from chrono.rules.partitions import partition_of
from chrono.rules.states import Outcome, Priority, Reason
from tests.scheduler.conftest import NOON, Leader

FIRED, SKIPPED = Outcome.FIRED, Outcome.SKIPPED
TENS = [NOON + n * 10 * MINUTE for n in range(1, 7)]
"""12:10 to 13:00, missed at five past one."""


def miss(leader: Leader, **fields: Any) -> Any:
    """Create a job of every ten minutes, and look at five past one."""
    fields = {"interval": "10m", "overlap_policy": "allow_all", **fields}
    job = leader.create("missed", **fields)
    leader.clock.moment = NOON + HOUR + 5 * MINUTE
    leader.step()
    return job


def fired(*moments: int) -> list[tuple[str, int, None, None]]:
    return [(format_instant(moment), FIRED, None, None) for moment in moments]


@pytest.mark.parametrize(
    ("fields", "given_up", "runs"),
    [
        ({"catchup_policy": "skip"}, (Reason.MISSED_SKIP, 6), []),
        ({"catchup_policy": "run_once"}, (Reason.COLLAPSED, 5), TENS[-1:]),
        ({"catchup_policy": "run_all"}, None, TENS),
        (
            {"catchup_policy": "deadline", "max_delay": "25m"},
            (Reason.PAST_DEADLINE, 3),
            TENS[3:],
        ),
        ({"max_delay": "2m"}, (Reason.PAST_DEADLINE, 6), []),
        (
            {"catchup_policy": "run_all", "max_delay": "24m"},
            (Reason.PAST_DEADLINE, 4),
            TENS[4:],
        ),
    ],
)
def test_b28_each_policy_leaves_exact_rows(
    leader: Leader,
    fields: dict[str, Any],
    given_up: tuple[Reason, int] | None,
    runs: list[int],
) -> None:
    job = miss(leader, **fields)
    expected = fired(*runs)
    if given_up is not None:
        reason, count = given_up
        expected.insert(0, (format_instant(TENS[0]), SKIPPED, reason, count))  # type: ignore[arg-type]
    assert leader.ledger(job) == expected
    assert leader.blocked(job) == [(moment, "catch_up") for moment in runs]
    assert leader.ready(job) == []
    assert leader.planned(job) == [(NOON + HOUR + 10 * MINUTE, None)]


def test_a_deadline_parts_what_is_skipped_from_what_collapses(leader: Leader) -> None:
    job = miss(leader, max_delay="35m")
    assert leader.ledger(job) == [
        (format_instant(TENS[0]), SKIPPED, Reason.PAST_DEADLINE, 2),
        (format_instant(TENS[2]), SKIPPED, Reason.COLLAPSED, 3),
        *fired(TENS[5]),
    ]


def test_a_stretch_names_its_end(leader: Leader) -> None:
    job = miss(leader, catchup_policy="skip")
    [(last, run)] = leader.conn.execute(
        "SELECT last_scheduled_for, run_id FROM chrono_occurrence WHERE job_id = %s",
        [job],
    ).fetchall()
    assert to_millis(last) == TENS[-1]
    assert run == run_id(job, TENS[0], 0, partition_of(job))


def test_a_run_of_the_lane_is_like_any_other_but_for_its_place(leader: Leader) -> None:
    job = miss(leader, jitter_window="60s", priority="high")
    offset = jitter.offset(job, MINUTE)
    [row] = leader.conn.execute(
        "SELECT run_id, due_at, priority, attempt, queue, gate, reason, revision, "
        "fence FROM chrono_blocked"
    ).fetchall()
    part = partition_of(job)
    fence = leader.dispatcher.cache.held[part].term.fence
    assert row == (
        run_id(job, TENS[-1], 0, part),
        row[1],
        Priority.BULK,
        1,
        "default",
        "catch_up",
        Reason.CATCH_UP,
        1,
        fence,
    )
    assert to_millis(row[1]) == TENS[-1] + offset


def test_a_minute_late_fires_and_a_millisecond_more_is_missed(leader: Leader) -> None:
    job = leader.create("edge", interval="1h", overlap_policy="allow_all")
    leader.clock.moment = NOON + HOUR + MINUTE
    leader.step()
    assert leader.ready(job) == [NOON + HOUR]
    leader.clock.moment = NOON + 2 * HOUR + MINUTE + 1
    # One that has waited for an hour would let it in at once.
    leader.begin_anew()
    leader.step()
    assert leader.ready(job) == [NOON + HOUR]
    assert leader.blocked(job) == [(NOON + 2 * HOUR, "catch_up")]


def test_late_by_its_jitter_is_not_missed(leader: Leader) -> None:
    job = leader.create("spread", interval="1h", jitter_window="10m")
    offset = jitter.offset(job, 10 * MINUTE)
    leader.clock.moment = NOON + HOUR + offset + MINUTE
    leader.step()
    assert leader.ready(job) == [NOON + HOUR]


def test_what_is_late_is_held_to_its_deadline_too(leader: Leader) -> None:
    job = leader.create(
        "short", interval="10s", overlap_policy="allow_all", max_delay="15s"
    )
    leader.clock.moment = NOON + 45 * SECOND
    leader.step()
    assert [row[1:3] for row in leader.ledger(job)] == [
        (SKIPPED, Reason.PAST_DEADLINE),
        (SKIPPED, Reason.PAST_DEADLINE),
        (FIRED, None),
        (FIRED, None),
    ]


@pytest.mark.parametrize(
    ("fields", "row"),
    [
        ({}, (FIRED, None)),
        ({"catchup_policy": "run_all"}, (FIRED, None)),
        ({"catchup_policy": "skip"}, (SKIPPED, Reason.MISSED_SKIP)),
        ({"max_delay": "30m"}, (SKIPPED, Reason.PAST_DEADLINE)),
    ],
)
def test_a_one_shot_is_missed_once(
    leader: Leader, fields: dict[str, Any], row: tuple[Any, ...]
) -> None:
    job = leader.create("once", run_at=format_instant(NOON + MINUTE), **fields)
    leader.clock.moment = NOON + HOUR
    leader.step()
    assert [found[1:3] for found in leader.ledger(job)] == [row]
    assert leader.planned(job) == []
    leader.run_to(NOON + HOUR + SECOND)
    assert len(leader.ready(job)) == (row[0] is FIRED)


def test_a_schedule_that_ended_meanwhile_leaves_no_timer(leader: Leader) -> None:
    job = miss(leader, catchup_policy="run_all", ends_at=format_instant(TENS[2]))
    assert leader.fired(job) == TENS[:3]
    assert leader.planned(job) == []


def test_live_runs_go_before_missed_ones(leader: Leader) -> None:
    missed = [
        leader.create(f"missed {n}", interval="10m", overlap_policy="allow_all")
        for n in range(3)
    ]
    live = leader.create("live", run_at=format_instant(NOON + HOUR))
    leader.clock.moment = NOON + HOUR
    leader.step()
    assert leader.ready(live) == [NOON + HOUR]
    # A row that is written later has a later transaction.
    ages = leader.conn.execute(
        "SELECT job_id FROM chrono_occurrence "
        "WHERE job_id = %s OR reason = %s ORDER BY xmin::text::bigint",
        [live, Reason.COLLAPSED],
    ).fetchall()
    assert ages[0] == (live,)
    assert {job for (job,) in ages[1:]} == set(missed)


def test_a_long_outage_is_decided_in_bounded_pieces(leader: Leader) -> None:
    jobs = [
        leader.create(
            f"seconds {n}",
            interval="1s",
            overlap_policy="allow_all",
            catchup_policy="run_all",
        )
        for n in range(6)
    ]
    now = leader.clock.moment = NOON + HOUR + 20 * SECOND
    decided, waits = [0], []
    while not waits or waits[-1] == 0:
        waits.append(leader.dispatcher.step().wait)
        decided.append(sum(row[3] or 1 for job in jobs for row in leader.ledger(job)))
    pieces = [later - earlier for earlier, later in pairwise(decided)]
    assert 0 < max(pieces) <= 6_000
    assert len(pieces) > 3
    for job in jobs:
        rows = leader.ledger(job)
        assert sum(row[3] or 1 for row in rows) == (now - NOON) // SECOND
        assert len(leader.blocked(job)) == 1_000
        assert max(row[3] or 1 for row in rows) == 1_000


class Killed(Exception):
    """The leader's process ends here."""


@contextmanager
def killed_at(conn: Connection, statement: int, *, answered: bool) -> Iterator[None]:
    """End the caller at its n-th statement: before it was sent, or before its answer.

    Nothing that was sent is undone.
    """
    execute = conn.execute
    sent = 0

    def counting(*args: Any, **options: Any) -> Any:
        nonlocal sent
        sent += 1
        if sent == statement and not answered:
            raise Killed
        cursor = execute(*args, **options)
        if sent == statement:
            raise Killed
        return cursor

    conn.execute = counting  # type: ignore[method-assign]
    try:
        yield
    finally:
        conn.execute = execute  # type: ignore[method-assign]


@pytest.mark.parametrize("answered", [False, True])
def test_killed_at_any_statement_the_next_leader_makes_it_exact(
    leader: Leader, answered: bool
) -> None:
    seconds = leader.create(
        "seconds", interval="1s", overlap_policy="allow_all", catchup_policy="run_all"
    )
    once = leader.create("tens", interval="10m")
    deadline = leader.create(
        "deadline", interval="1m", catchup_policy="deadline", max_delay="20m"
    )
    now = leader.clock.moment = NOON + HOUR + 20 * SECOND
    statement, kills = 0, 0
    while True:
        statement += 1
        leader.begin_anew()
        try:
            with killed_at(leader.conn, statement, answered=answered):
                leader.step()
        except Killed:
            kills += 1
            continue
        break
    assert kills > 5
    everything = range(NOON + SECOND, now + 1, SECOND)
    covered: list[int] = []
    for first, last, count in leader.conn.execute(
        "SELECT scheduled_for, coalesce(last_scheduled_for, scheduled_for), "
        "coalesce(occurrences, 1) FROM chrono_occurrence WHERE job_id = %s ORDER BY 1",
        [seconds],
    ).fetchall():
        stretch = range(to_millis(first), to_millis(last) + 1, SECOND)
        assert len(stretch) == count
        covered += stretch
    assert covered == list(everything)
    # A minute of late ones, and the newest thousand of those that were missed.
    assert leader.fired(seconds) == list(everything)[-1_061:]
    assert leader.fired(once) == [NOON + 50 * MINUTE, NOON + HOUR]
    assert len(leader.fired(deadline)) == 20
    for job in (seconds, once, deadline):
        made = [moment for moment, _ in leader.blocked(job)] + leader.ready(job)
        skipped = [r for r in leader.ledger(job) if r[2] == Reason.OVERLAP]
        assert sorted(made) == leader.fired(job)
        assert len(leader.planned(job)) == 1
        assert not skipped or job != seconds


def test_what_an_edit_left_to_run_goes_to_the_lane(leader: Leader) -> None:
    job = leader.create(
        "edited", interval="10m", overlap_policy="allow_all", catchup_policy="run_all"
    )
    leader.clock.moment = NOON + HOUR + 5 * MINUTE
    patch_job(job, {"interval": "7m"}, now=leader.clock.moment)
    leader.step()
    assert leader.fired(job) == TENS
    assert leader.blocked(job) == [(moment, "catch_up") for moment in TENS]
    bulk = "SELECT DISTINCT priority FROM chrono_blocked"
    assert leader.conn.execute(bulk).fetchall() == [(Priority.BULK,)]


def test_a_schedule_that_cannot_be_decided_stops_nobody_else(leader: Leader) -> None:
    bad = leader.create("bad", interval="10m")
    goods = [leader.create(f"good {n}", interval="10m") for n in range(5)]
    leader.conn.execute(
        f"ALTER TABLE chrono_occurrence ADD CONSTRAINT poison CHECK (job_id <> '{bad}')"
    )
    leader.clock.moment = NOON + HOUR + 5 * MINUTE
    leader.step()
    assert leader.ledger(bad) == []
    assert all(leader.fired(good) == [NOON + HOUR] for good in goods)
    leader.conn.execute("ALTER TABLE chrono_occurrence DROP CONSTRAINT poison")
    leader.run_to(NOON + HOUR + 6 * MINUTE, every=30 * SECOND)
    assert leader.fired(bad) == [NOON + HOUR]


def test_a_partition_that_somebody_holds_stops_nobody_else(
    leader: Leader, dsn: str
) -> None:
    jobs = [leader.create(f"job {n}", interval="10m") for n in range(12)]
    part = partition_of(jobs[0])
    others = [job for job in jobs if partition_of(job) != part]
    leader.clock.moment = NOON + HOUR + 5 * MINUTE
    leader.conn.execute("SET lock_timeout = '20ms'")
    sent = 0
    execute = leader.conn.execute

    def counting(query: Any, *args: Any, **options: Any) -> Any:
        nonlocal sent
        sent += "miss_if_held" in str(query)
        return execute(query, *args, **options)

    leader.conn.execute = counting  # type: ignore[method-assign]
    with psycopg.connect(dsn) as holder:
        holder.execute("SELECT FROM chrono_partition WHERE id = %s FOR UPDATE", [part])
        leader.step()
        assert all(leader.fired(job) == [NOON + HOUR] for job in others)
        assert leader.fired(jobs[0]) == []
    # Once for those of each read, then once for each partition of one where somebody
    # holds it: no lock is waited for again and again.
    assert sent <= -(-64 // OVERDUE_PARTS) + OVERDUE_PARTS
    leader.run_to(NOON + HOUR + 6 * MINUTE, every=10 * SECOND)
    assert leader.fired(jobs[0]) == [NOON + HOUR]


class Ahead:
    """A leader's clock that is an hour ahead of the database's."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def now(self) -> Millis:
        return self._clock.moment + HOUR

    def override(self) -> Millis:
        return self._clock.moment


def test_what_lies_ahead_of_the_database_s_clock_is_not_missed(leader: Leader) -> None:
    job = leader.create("tick", interval="1s", overlap_policy="allow_all")
    leader.run_to(NOON + 2 * SECOND)
    leader.clock.moment = NOON + 3 * SECOND
    leader.dispatcher = Dispatcher(leader.conn, Ahead(leader.clock))
    leader.dispatcher.adopt(store.take_over(leader.conn, parts=range(64), owner="a"))
    for _ in range(3):
        leader.dispatcher.step()
    leader.dispatcher = Dispatcher(leader.conn, leader.clock)
    leader.dispatcher.adopt(store.take_over(leader.conn, parts=range(64), owner="b"))
    leader.run_to(NOON + 4 * SECOND)
    assert leader.fired(job) == [NOON + n * SECOND for n in range(1, 5)]
    assert len(leader.ledger(job)) == 4


@pytest.mark.parametrize("policy", ["run_once", "skip"])
def test_a_single_instant_that_lay_back_when_it_was_made_runs_at_once(
    leader: Leader, policy: str
) -> None:
    job = leader.create(
        "yesterday", run_at=format_instant(NOON - 5 * HOUR), catchup_policy=policy
    )
    leader.step()
    assert leader.ready(job) == [NOON - 5 * HOUR]


def test_a_single_instant_that_nobody_fired_is_missed(leader: Leader) -> None:
    job = leader.create(
        "soon", run_at=format_instant(NOON + MINUTE), catchup_policy="skip"
    )
    leader.clock.moment = NOON + 5 * MINUTE
    leader.step()
    assert leader.ready(job) == []
    assert [row[2] for row in leader.ledger(job)] == [Reason.MISSED_SKIP]
