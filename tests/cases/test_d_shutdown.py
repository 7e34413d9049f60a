"""Group D: workers that are told to stop, or whose loop hangs, and are not dead."""

import threading
import uuid
from collections import Counter
from contextlib import ExitStack

import pytest

from apps.jobs.commands import create_job
from apps.runs import selectors, store, worker_store
from apps.runs.sweep import Sweep
from apps.runs.waits import why_waiting
from apps.runtime.clock import ManualClock
from apps.runtime.sessions import connect_hot
from apps.runtime.store import read_clock
from apps.worker import beats, process
from chrono.rules.instants import HOUR
from chrono.rules.lease import BEAT_EVERY, GONE_AFTER, LEASE_TTL, SWEEP_EVERY
from chrono.rules.partitions import partition_of
from chrono.rules.retry import FREE_INTERRUPTIONS
from chrono.rules.states import Reason, RunState
from tests.support.definitions import definition
from tests.support.seed import DUE, SeededJob, make_job, make_ready
from tests.worker.support import (
    FAST,
    count,
    offered_again,
    running,
    settled,
    wait_for,
    waiting,
)


def why(conn, run):
    row, _ = selectors.get_run(conn, run, tenant=1)
    return why_waiting(conn, row, DUE)


def task_job(conn, name, **options):
    return make_job(conn, target={"kind": "task", "name": name}, **options)


@pytest.fixture
def beaten(connect, monkeypatch):
    """Waits for some more beats of the one worker there is."""
    monkeypatch.setattr(beats, "next_beat_in", lambda *_: 20)
    conn = connect()

    def beat_at():
        [(at,)] = conn.execute("SELECT max(beat_at) FROM chrono_worker").fetchall()
        return at

    def wait():
        for _ in range(3):
            before = beat_at()
            wait_for(lambda before=before: beat_at() > before)

    return wait


def rescued_by_a_sweep(dsn, monkeypatch):
    """Return how many runs a sweep takes from workers within the time of a lease."""
    monkeypatch.setattr("apps.runs.sweep.SESSIONS_BACK_AFTER", 0)
    sweep, clock = Sweep(horizon=lambda: 0), ManualClock(DUE)
    rescued = 0
    with connect_hot(dsn, name="test sweep") as conn:
        for _ in range(0, LEASE_TTL + GONE_AFTER, SWEEP_EVERY):
            rescued += sweep.step(conn, clock=clock)
            clock.moment += SWEEP_EVERY
    return rescued


def test_d01_a_worker_that_is_told_to_stop_beats_until_its_runs_have_ended(
    dsn, connect, beaten, monkeypatch
):
    conn = connect()
    begun, free = threading.Event(), threading.Event()

    def work(payload):
        begun.set()
        return free.wait(30)

    job = task_job(conn, "work")
    [run] = make_ready(conn, job)
    with running(dsn, {"work": work}, drain_s=60) as worker:
        assert begun.wait(5)
        worker.stop()
        wait_for(worker.worker._stop.is_set)
        beaten()
        [later] = make_ready(conn, job)
        assert rescued_by_a_sweep(dsn, monkeypatch) == 0
        beaten()
        free.set()
        assert worker.result() is True
    assert settled(conn) == [(run, RunState.SUCCESS, None, 1, True)]
    assert conn.execute("SELECT run_id FROM chrono_ready").fetchall() == [(later,)]


def test_d08_a_worker_whose_loop_is_blocked_beats_and_keeps_its_runs(
    dsn, connect, beaten, monkeypatch
):
    conn = connect()
    begun, free = threading.Event(), threading.Event()

    async def block(payload):
        begun.set()
        return free.wait(30)

    assert BEAT_EVERY <= LEASE_TTL / 3
    [run] = make_ready(conn, task_job(conn, "block"))
    with running(dsn, {"block": block}):
        assert begun.wait(5)
        beaten()
        assert rescued_by_a_sweep(dsn, monkeypatch) == 0
        beaten()
        free.set()
        assert settled(conn) == [(run, RunState.SUCCESS, None, 1, True)]


def test_d15_stops_spend_no_attempt_until_there_were_too_many(
    dsn, connect, monkeypatch
):
    monkeypatch.setattr(process, "ECHO_S", 0.0)
    conn = connect()
    begun = threading.Event()

    def work(payload, ctx):
        begun.set()
        wait_for(lambda: ctx.cancelled)

    policy = FAST | {"max_attempts": 2}
    [run] = make_ready(conn, task_job(conn, "work", retry_policy=policy))
    for stops in range(1, FREE_INTERRUPTIONS + 3):
        with running(dsn, {"work": work}) as worker:
            assert begun.wait(5)
            begun.clear()
            worker.stop()
            worker.stop()
            assert worker.result() is True
        spent = max(0, stops - FREE_INTERRUPTIONS)
        assert count(conn, "attempt") == spent
        if spent < 2:
            offered_again(conn, run, 1 + spent)
    dead = (RunState.DEAD, Reason.ATTEMPTS_EXHAUSTED, 2, None)
    assert settled(conn) == [(run, *dead)]


def test_d15_a_stop_of_who_lost_the_lease_is_not_counted(dsn, connect):
    conn, worker = connect(), uuid.uuid4()
    runs = make_ready(conn, task_job(conn, "work"), count=2)
    with connect_hot(dsn, name="test") as hot:
        claimed = store.claim_ready(hot, queue="default", limit=2, worker=worker)
        [held, lost] = [(lease.run_id, lease.token) for lease in claimed]
        stale = [held, (lost[0], uuid.uuid4())]
        for times in (1, 2):
            noted = worker_store.note_interruptions_if_leased(hot, stale)
            assert noted == {held[0]: times}
    assert count(conn, "death") == 1
    assert {held[0], lost[0]} == set(runs)


@pytest.mark.slow
def test_d16_after_20_rolling_restarts_under_load_each_run_was_executed_once(
    dsn, connect, start
):
    conn = connect()
    executed, told, runs = Counter(), threading.Event(), []

    def work(payload, ctx):
        told.wait(30)
        executed.update([ctx.run_id])

    now = int(read_clock(conn))
    target = {"kind": "task", "name": "work"}
    made = create_job(definition(interval="1d", target=target), now=now).job_id
    job = SeededJob(id=made, part=partition_of(made), queue="default")
    # What a claim brings that was open at the stop is handed back, and fired again.
    start()
    with ExitStack() as stack:
        old = stack.enter_context(running(dsn, {"work": work}))
        for _ in range(20):
            told.clear()
            runs += make_ready(conn, job, count=50, due_at=now - HOUR + len(runs))
            new = stack.enter_context(running(dsn, {"work": work}))
            wait_for(lambda: count(conn, "lease") >= 20)
            old.stop()
            wait_for(old.worker._stop.is_set)
            told.set()
            assert old.result() is True
            old = new
        rows = settled(conn, len(runs), timeout=30)
    assert rows == [(run, RunState.SUCCESS, None, 1, None) for run in runs]
    assert set(executed.values()) == {1}
    assert len(executed) == len(runs)


def test_d07_a_run_whose_task_nobody_knows_waits_and_says_so_until_somebody_does(
    dsn, connect
):
    conn = connect()
    [run] = make_ready(conn, task_job(conn, "billing.close", retry_policy=FAST))
    for _ in range(5):
        with running(dsn, {"other": print}):
            [(ref, attempt, wait_s)] = waiting(conn)
            assert (ref, attempt) == (run, 1)
            assert wait_s > 50
            assert why(conn, run).endswith(
                ". No worker that asks for its queue knows the task billing.close. "
                "Deploy the code that has it to those workers, or start one that has "
                "it for the queue default: runworker --queues default."
            )
        offered_again(conn, run, 1)
    with running(dsn, {"billing.close": lambda payload: "closed"}):
        assert settled(conn) == [(run, RunState.SUCCESS, None, 1, "closed")]
    assert count(conn, "attempt") == 0
