"""Group D: what the dead held is offered again, once, and stops nothing meanwhile."""

import os
import random
import signal
import threading

import pytest

from apps.runs import store, worker_store
from apps.runs.store import Settlement
from apps.runs.sweep import rescue_all
from apps.runtime.sessions import connect_hot
from chrono.rules.instants import HOUR, MINUTE, SECOND, format_instant
from chrono.rules.lease import LEASE_TTL
from chrono.rules.states import Outcome, Reason, RunState
from tests.cases.test_d_workers import a_worker, claim
from tests.scheduler.conftest import NOON
from tests.scheduler.test_process import holder, wait_for_shares
from tests.worker.support import count, wait_for

WAITS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE application_name = 'chrono sweep' AND wait_event_type = 'Lock'
        AND datname = current_database()
"""


def bury(leader, *, crashed=True):
    """Have all workers be dead, or silent for too long, and what they held be found."""
    [(workers,)] = leader.conn.execute("SELECT array_agg(id) FROM chrono_worker")
    if crashed:
        worker_store.mark_dead(leader.conn, workers=workers)
    else:
        leader.conn.execute("UPDATE chrono_worker SET beat_at = now() - interval '1h'")
        worker_store.mark_dead_if_stale(leader.conn, workers=workers, ttl=LEASE_TTL)
    horizon = leader.clock.moment + 24 * HOUR
    return rescue_all(leader.conn, now=leader.clock.moment, horizon=lambda: horizon)


def test_d05_whoever_recovers_may_die_at_it_and_another_one_does(dsn, connect, start):
    conn, blocker = connect(), connect()
    first = start()
    wait_for_shares(conn, 64)
    second = start()
    owners = wait_for_shares(conn, 32, 32)
    [(keeper,)] = conn.execute("SELECT owner FROM chrono_partition WHERE id = 0")
    [sweeps] = [one for one in (first, second) if holder(owners, one) == keeper]
    with connect_hot(dsn, name="test") as hot:
        worker = a_worker(hot)
        claim(hot, worker, runs=3)
        with blocker.transaction():
            blocker.execute("SELECT FROM chrono_lease FOR UPDATE")
            worker_store.mark_dead(hot, workers=[worker])
            wait_for(lambda: conn.execute(WAITS).fetchone() == (1,), timeout=20)
            os.kill(sweeps.pid, signal.SIGKILL)
            sweeps.wait(5)
            assert count(conn, "lease") == 3
    wait_for(lambda: count(conn, "lease") == 0, timeout=15)
    assert count(conn, "attempt") == 3


def test_d09_a_holder_that_died_gives_its_place_of_a_key_to_the_next(leader):
    jobs = []
    for n in range(2):
        at = format_instant(leader.clock.moment + SECOND)
        jobs.append(leader.create(f"job-{n}", run_at=at, concurrency_key="provider"))
        leader.run_to(leader.clock.moment + 2 * SECOND)
    [held] = leader.claim()
    leader.run_to(leader.clock.moment + MINUTE)
    assert leader.claim() == []
    assert bury(leader) == 1
    leader.run_to(leader.clock.moment + LEASE_TTL + 5 * SECOND)
    [following] = leader.claim()
    assert [held.job_id, following.job_id] == jobs
    leader.settle(following)
    leader.run_to(leader.clock.moment + SECOND)
    # And what it held comes after that.
    assert [again.run_id for again in leader.claim()] == [held.run_id]


def test_d12_of_who_ends_a_run_and_who_recovers_it_one_wins_in_10_000_races(
    dsn, connect, background
):
    conn, rounds, size = connect(), 20, 500
    finished, recovered = 0, 0
    lot = random.Random(12)
    with connect_hot(dsn, name="worker") as one, connect_hot(dsn, name="sweep") as two:
        for session in (one, two):
            session.execute("SET lock_timeout = '30s'")
        for _ in range(rounds):
            worker = a_worker(one)
            leases = claim(one, worker, runs=size)
            worker_store.mark_dead(one, workers=[worker])
            lot.shuffle(leases)
            begin = threading.Barrier(2)

            def finish(leases=leases, begin=begin):
                ends = [Settlement(run_id=x.run_id, token=x.token) for x in leases]
                begin.wait()
                return sum(
                    len(store.settle_if_leased(one, ends[n : n + 5], horizon=0))
                    for n in range(0, size, 5)
                )

            def recover(begin=begin):
                begin.wait()
                return rescue_all(two, now=0, horizon=lambda: 0)

            ended, taken = background(finish), background(recover)
            finished += ended.result(timeout=30)
            recovered += taken.result(timeout=30)
    assert finished + recovered == rounds * size
    assert finished
    assert recovered
    assert count(conn, "run") == finished
    assert count(conn, "timer_far") == count(conn, "attempt") == recovered
    both = "SELECT count(*) FROM chrono_timer_far JOIN chrono_run ON id = ref"
    assert conn.execute(both).fetchone() == (0,)


def test_d19_what_was_to_wake_while_all_were_down_runs_within_5_s_of_the_start(leader):
    wakes = format_instant(NOON + MINUTE)
    sleeper = leader.create("sleeper", run_at=wakes)
    failed = leader.create("failed", run_at=format_instant(NOON + SECOND))
    leader.run_to(NOON + 2 * SECOND)
    [lease] = leader.claim()
    again = {"state": 0, "reason": Reason.ATTEMPT_FAILED, "error": "no"}
    leader.settle(lease, **again, due=NOON + 2 * MINUTE)
    leader.clock.moment = NOON + 2 * HOUR
    leader.begin_anew()
    leader.run_to(leader.clock.moment + 5 * SECOND)
    woken = leader.claim()
    assert {lease.job_id for lease in woken} == {sleeper, failed}
    assert leader.settle(*woken) == 2


@pytest.mark.parametrize("attempts", [1, 6])
def test_d20_a_run_whose_worker_died_keeps_no_later_one_from_running(leader, attempts):
    policy = {"max_attempts": attempts}
    job = leader.create("unique", interval="1m", retry_policy=policy)
    leader.run_to(NOON + MINUTE)
    [stuck] = leader.claim()
    leader.run_to(NOON + 2 * MINUTE)
    overlap = (format_instant(NOON + 2 * MINUTE), Outcome.SKIPPED, Reason.OVERLAP, None)
    assert leader.ledger(job)[1:] == [overlap]
    assert bury(leader, crashed=False) == 1
    leader.run_to(NOON + 2 * MINUTE + SECOND)
    assert leader.succeed() == (0 if attempts == 1 else 1)
    [(_, state, _)] = leader.ended(job)
    assert state == (RunState.DEAD if attempts == 1 else RunState.SUCCESS)
    leader.run_to(NOON + 3 * MINUTE)
    [following] = leader.claim()
    assert following.run_id != stuck.run_id
    assert leader.fired(job) == [NOON + MINUTE, NOON + 3 * MINUTE]
