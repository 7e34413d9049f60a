"""Field cases of group D: workers that die, leases that end, what is recovered."""

import itertools
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from apps.runs import store, worker_store
from apps.runs.sweep import Sweep, rescue_all
from apps.runtime.clock import ManualClock
from apps.runtime.sessions import Connection, connect_hot
from chrono.rules.lease import (
    BEAT_EVERY,
    CROWD_LOOK_AFTER,
    GONE_AFTER,
    LEASE_TTL,
    SWEEP_EVERY,
)
from chrono.rules.states import Reason
from tests.support.seed import DUE, make_job, make_ready

TASK = {"kind": "task", "name": "nothing"}
HOURS_6 = 6 * 3_600_000


@pytest.fixture
def new_conn(dsn: str) -> Iterator[Callable[[], Connection]]:
    """Open hot sessions."""
    opened: list[Connection] = []

    def connect() -> Connection:
        opened.append(connect_hot(dsn, name="test"))
        return opened[-1]

    yield connect
    for conn in opened:
        conn.close()


@pytest.fixture
def conn(new_conn: Callable[[], Connection]) -> Connection:
    """A hot session."""
    return new_conn()


def a_worker(conn: Connection, *, held: bool = False) -> uuid.UUID:
    worker = uuid.uuid4()
    worker_store.register_worker(
        conn,
        worker=worker,
        host="web.1",
        pid=7,
        concurrency=9,
        queues=["default"],
        held=held,
    )
    return worker


def claim(conn: Connection, worker: uuid.UUID, runs: int = 1) -> list[store.Lease]:
    make_ready(conn, make_job(conn, target=TASK), count=runs)
    leases = store.claim_ready(conn, queue="default", limit=runs, worker=worker)
    assert len(leases) == runs
    return leases


def count(conn: Connection, table: str) -> int:
    [(number,)] = conn.execute(f"SELECT count(*) FROM {table}").fetchall()
    return int(number)


def test_d03_a_new_process_under_the_old_name_keeps_nobody_else_alive(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.runs.sweep.SESSIONS_BACK_AFTER", 0)
    claim(conn, a_worker(conn, held=True))
    again = a_worker(conn)
    sweep, clock = Sweep(horizon=lambda: 0), ManualClock(DUE)
    rescued = 0
    for _ in range(0, GONE_AFTER + SWEEP_EVERY, SWEEP_EVERY):
        worker_store.beat_if_alive(conn, worker=again)
        rescued += sweep.step(conn, clock=clock)
        clock.moment += SWEEP_EVERY
    assert rescued == 1


def test_d04_runs_whose_worker_has_no_row_are_recovered(conn: Connection) -> None:
    claim(conn, a_worker(conn), runs=3)
    conn.execute("DELETE FROM chrono_worker")
    assert Sweep(horizon=lambda: 0).step(conn, clock=ManualClock(DUE)) == 3


def test_d11_a_run_of_six_hours_has_one_attempt_while_its_worker_beats(
    conn: Connection,
) -> None:
    worker = a_worker(conn)
    [lease] = claim(conn, worker)
    sweep, clock = Sweep(horizon=lambda: 0), ManualClock(DUE)
    # Each beat comes at the last moment before the next; the run is as old as it gets.
    conn.execute("UPDATE chrono_lease SET started_at = now() - interval '6 hours'")
    for second in itertools.count(0, SWEEP_EVERY):
        if second >= HOURS_6:
            break
        if second % (600 * BEAT_EVERY):
            clock.moment += SWEEP_EVERY
            continue
        conn.execute(
            "UPDATE chrono_worker SET beat_at = now() - %s * interval '1 ms'",
            [BEAT_EVERY],
        )
        assert sweep.step(conn, clock=clock) == 0
        assert worker_store.beat_if_alive(conn, worker=worker).cancelled == []
    settled = [store.Settlement(run_id=lease.run_id, token=lease.token)]
    assert store.settle_if_leased(conn, settled, horizon=0) == {lease.run_id}
    assert conn.execute("SELECT attempt FROM chrono_run").fetchall() == [(1,)]


def test_d13_three_reapers_of_a_thousand_runs_make_a_thousand_transitions(
    conn: Connection,
    new_conn: Callable[[], Connection],
    background: Callable[..., Future[int]],
) -> None:
    worker = a_worker(conn)
    claim(conn, worker, runs=1_000)
    worker_store.mark_dead(conn, workers=[worker])
    conns = [new_conn() for _ in range(3)]
    for each in conns:
        # They wait for one another, on a busy machine for longer than one may.
        each.execute("SET lock_timeout = '30s'")
    reapers = [
        background(rescue_all, each, now=DUE, horizon=lambda: 0) for each in conns
    ]
    assert sum(reaper.result(timeout=30) for reaper in reapers) == 1_000
    assert count(conn, "chrono_timer_far") == count(conn, "chrono_attempt") == 1_000
    [(most,)] = conn.execute("SELECT max(deaths) FROM chrono_death").fetchall()
    assert most == 1


def test_d23_no_age_of_a_run_ends_its_lease(conn: Connection) -> None:
    claim(conn, a_worker(conn))
    conn.execute(
        "UPDATE chrono_lease SET due_at = now() - interval '30 days',"
        " dispatched_at = now() - interval '30 days',"
        " started_at = now() - interval '30 days'"
    )
    sweep, clock = Sweep(horizon=lambda: 0), ManualClock(DUE)
    for _ in range(5):
        assert sweep.step(conn, clock=clock) == 0
        clock.moment += LEASE_TTL + CROWD_LOOK_AFTER


def test_e01_a_run_that_ends_its_process_is_a_dead_letter_and_the_others_are_not(
    conn: Connection,
) -> None:
    once = {"max_attempts": 1}
    [guilty] = make_ready(conn, make_job(conn, target=TASK, retry_policy=once))
    others = make_ready(conn, make_job(conn, target=TASK, retry_policy=once), count=4)
    for _ in range(2):
        worker = a_worker(conn)
        assert len(
            store.claim_ready(conn, queue="default", limit=9, worker=worker)
        ) == len([guilty, *others])
        worker_store.mark_dead(conn, workers=[worker])
        assert rescue_all(conn, now=DUE, horizon=lambda: 0) == 5
        conn.execute(
            """
            WITH moved AS (DELETE FROM chrono_timer_far RETURNING *)
            INSERT INTO chrono_ready (due_at, dispatched_at, run_id, job_id, tag, fence,
                revision, tenant, part, priority, attempt, slice, queue)
            SELECT due_at, now(), ref, job_id, 1, 1, 1, 1, part, 2, attempt, 0,
                'default' FROM moved
            """
        )
    assert count(conn, "chrono_blocked") == 5
    for _ in range(5):
        worker = uuid.uuid4()
        worker_store.register_worker(
            conn,
            worker=worker,
            host="t",
            pid=1,
            concurrency=1,
            queues=["default"],
            alone=True,
        )
        [lease] = store.claim_set_aside(conn, queue="default", limit=1, worker=worker)
        if lease.run_id == guilty:
            worker_store.mark_dead(conn, workers=[worker])
            assert rescue_all(conn, now=DUE, horizon=lambda: 0) == 1
        else:
            settled = [store.Settlement(run_id=lease.run_id, token=lease.token)]
            store.settle_if_leased(conn, settled, horizon=0)
    rows = conn.execute("SELECT id, state, reason FROM chrono_run").fetchall()
    assert {run: reason for run, _, reason in rows} == dict.fromkeys(others) | {
        guilty: Reason.PROCESS_CRASH
    }
