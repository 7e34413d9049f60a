"""What a leader reads and when: ahead in pieces, and apart what is overdue."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from apps.jobs.commands import patch_job
from apps.scheduler import load, store
from chrono.rules.instants import HOUR, MINUTE, SECOND, Millis, format_instant
from chrono.rules.partitions import partition_of
from tests.scheduler.conftest import NOON, Leader

ALWAYS = {"overlap_policy": "allow_all"}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[list[store.TimerRow]]:
    """The rows of each read of timers, as they come."""
    seen: list[list[store.TimerRow]] = []
    given: Callable[..., list[store.TimerRow]] = store.load_timers

    def listen(*args: Any, **options: Any) -> list[store.TimerRow]:
        rows = given(*args, **options)
        seen.append(rows)
        return rows

    monkeypatch.setattr(store, "load_timers", listen)
    return seen


def together(leader: Leader, number: int, **fields: Any) -> list[uuid.UUID]:
    """Create so many jobs that live in one partition."""
    jobs: list[uuid.UUID] = []
    tried = 0
    while len(jobs) < number:
        tried += 1
        job = leader.create(f"job {tried}", **fields)
        if partition_of(job) == partition_of(jobs[0] if jobs else job):
            jobs.append(job)
        else:
            leader.conn.execute("DELETE FROM chrono_timer WHERE job_id = %s", [job])
            leader.conn.execute("DELETE FROM chrono_timer_far WHERE job_id = %s", [job])
    return jobs


def test_no_timer_is_read_twice(
    leader: Leader, read: list[list[store.TimerRow]]
) -> None:
    jobs = [leader.create(f"job {n}", interval="25s", **ALWAYS) for n in range(5)]
    leader.begin_anew()
    leader.run_to(NOON + 10 * MINUTE)
    keys = [(row.due_at, row.ref) for rows in read for row in rows]
    assert len(keys) == len(set(keys))
    for job in jobs:
        assert leader.fired(job) == [NOON + n * 25 * SECOND for n in range(1, 25)]


def test_reads_of_few_rows_fire_all_and_at_their_instants(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [leader.create(f"job {n}", interval="7s", **ALWAYS) for n in range(30)]
    monkeypatch.setattr(load, "PIECE", 3)
    monkeypatch.setattr(load, "WHEEL", 10)
    monkeypatch.setattr(load, "OVERDUE_PIECE", 3)
    leader.begin_anew()
    leader.run_to(NOON + MINUTE)
    due = [NOON + n * 7 * SECOND for n in range(1, 9)]
    assert all(leader.fired(job) == due for job in jobs)
    # In an outage of an hour: the newest missed one and what is late, of each.
    leader.clock.moment += HOUR
    leader.begin_anew()
    leader.run_to(NOON + HOUR + 2 * MINUTE)
    late = [NOON + n * 7 * SECOND for n in range(508, 532)]
    newest = leader.clock.moment - 2 * MINUTE
    for job in jobs:
        again = [moment for moment in leader.fired(job) if moment > due[-1]]
        assert again[-17:] == late[-17:]
        assert len([moment for moment in again if moment < newest]) >= 1


def test_what_is_due_now_comes_before_a_backlog(
    leader: Leader, read: list[list[store.TimerRow]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "OVERDUE_PIECE", 64)
    late = [leader.create(f"late {n}", interval="1h", **ALWAYS) for n in range(200)]
    live = leader.create("live", run_at=format_instant(NOON + 3 * HOUR))
    leader.clock.moment = NOON + 3 * HOUR
    leader.begin_anew()
    leader.dispatcher.step()
    assert leader.fired(live) == [NOON + 3 * HOUR]
    assert [len(rows) <= 64 for rows in read] == [True] * len(read)
    assert sum(bool(leader.fired(job)) for job in late) < 200
    leader.step()
    assert all(leader.fired(job)[-1] == NOON + 3 * HOUR for job in late)


def test_what_cannot_be_decided_keeps_nobody_behind_it_waiting(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "OVERDUE_PIECE", 1)
    bad, good = together(leader, 2, interval="1h", **ALWAYS)
    leader.conn.execute(
        "UPDATE chrono_job_revision SET schedule = '{}' WHERE job_id = %s", [bad]
    )
    leader.clock.moment = NOON + 90 * MINUTE
    leader.begin_anew()
    leader.step()
    assert leader.fired(good) == [NOON + HOUR]
    assert leader.fired(bad) == []


@pytest.mark.parametrize(
    ("behind", "fired"),
    [(20 * SECOND, [NOON + 40 * SECOND]), (20 * MINUTE, [NOON - 19 * MINUTE, NOON])],
)
def test_a_timer_that_was_committed_long_after_it_was_due_is_found(
    leader: Leader, behind: Millis, fired: list[Millis]
) -> None:
    job = leader.create("job", interval="1h", catchup_policy="run_all", **ALWAYS)
    leader.run_to(NOON + MINUTE)
    leader.conn.execute(
        "UPDATE chrono_timer SET due_at = due_at - interval '1 h' + %s * interval "
        "'1 ms', scheduled_for = scheduled_for - interval '1 h' + %s * interval '1 ms'",
        [MINUTE - behind] * 2,
    )
    leader.run_to(NOON + MINUTE + load.OVERDUE_EVERY)
    assert leader.fired(job) == fired


def test_an_edit_in_an_outage_is_decided_by_the_walk_it_begins(leader: Leader) -> None:
    job = leader.create("job", interval="1h", catchup_policy="run_all", **ALWAYS)
    leader.run_to(NOON + MINUTE)
    leader.clock.moment = NOON + 3 * HOUR + MINUTE
    patch_job(job, {"interval": "30m"}, now=leader.clock.moment)
    leader.step()
    leader.run_to(leader.clock.moment + 2 * SECOND)
    assert leader.fired(job) == [NOON + n * HOUR for n in range(1, 4)]


def test_what_is_put_back_twice_comes_out_once(leader: Leader) -> None:
    leader.create("job", interval="30s", **ALWAYS)
    leader.step()
    cache = leader.dispatcher.cache
    [entry] = cache.take_due(NOON + 30 * SECOND)
    cache.put_back(entry, at=NOON + 30 * SECOND + 10)
    cache.put_back(entry, at=NOON + 30 * SECOND + 20)
    assert cache.take_due(NOON + MINUTE) == [entry]


def test_the_walk_along_what_is_overdue_reads_few_partitions_at_a_time(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest overdue first, so that nobody waits for another's backlog."""
    asked: list[list[int]] = []
    given = store.load_timers

    def listen(*args: Any, **options: Any) -> list[store.TimerRow]:
        if options["before"] < leader.clock.moment:
            asked.append(sorted(options["after"]))
        return given(*args, **options)

    monkeypatch.setattr(store, "load_timers", listen)
    monkeypatch.setattr(load, "OVERDUE_PARTS", 5)
    jobs = [leader.create(f"job {n}", interval="25s", **ALWAYS) for n in range(40)]
    leader.clock.moment = NOON + 10 * MINUTE
    leader.begin_anew()
    leader.step()
    assert max(map(len, asked)) == 5
    assert {part for parts in asked for part in parts} == set(range(64))
    assert all(leader.ledger(job) for job in jobs)
    assert leader.next_due() == NOON + 10 * MINUTE + 25 * SECOND


def test_nobody_asks_for_the_queues_heads_while_nothing_is_due_or_waits(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Millis] = []
    given = store.list_heads

    def listen(conn: Any) -> dict[tuple[str, int], int]:
        asked.append(leader.clock.moment - NOON)
        return given(conn)

    monkeypatch.setattr(store, "list_heads", listen)
    job = leader.create("one", run_at=format_instant(NOON + 22 * SECOND))
    leader.run_to(NOON + 20 * SECOND)
    assert 4 <= len(asked) <= 8  # of 40 looks
    leader.run_to(NOON + 24 * SECOND)
    assert leader.fired(job) == [NOON + 22 * SECOND]
    waits = [at for at in asked if at > 22_000]
    assert waits == [22_500, 23_000, 23_500, 24_000]
    leader.succeed()
