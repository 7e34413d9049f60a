"""Runs at whose execution processes died: who is charged, and who is executed alone."""

import uuid
from collections.abc import Iterator

import pytest

from apps.runs import store, worker_store
from apps.runs.cancel import cancel
from apps.runs.selectors import get_run, state_of
from apps.runs.sweep import rescue_all
from apps.runs.waits import why_waiting
from apps.runtime.sessions import Connection, connect_hot
from chrono.rules.states import Reason, RunState
from tests.support.seed import DUE, SeededJob, make_job, make_ready

TASK = {"kind": "task", "name": "nothing"}


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    """A hot session."""
    with connect_hot(dsn, name="test") as conn:
        yield conn


def a_worker(conn: Connection, *, alone: bool = False) -> uuid.UUID:
    worker = uuid.uuid4()
    worker_store.register_worker(
        conn,
        worker=worker,
        host="t",
        pid=1,
        concurrency=9,
        queues=["default"],
        alone=alone,
    )
    return worker


def sweep(conn: Connection) -> int:
    return rescue_all(conn, now=DUE, horizon=lambda: 0)


def ready_again(conn: Connection) -> None:
    """Put the runs that wait for another attempt into ready, as a fire does."""
    conn.execute(
        """
        WITH moved AS (DELETE FROM chrono_timer_far RETURNING *)
        INSERT INTO chrono_ready (due_at, dispatched_at, run_id, job_id, tag, fence,
            revision, tenant, part, priority, attempt, slice, queue)
        SELECT due_at, now(), ref, job_id, 1, 1, 1, 1, part, 2, attempt, 0, 'default'
        FROM moved
        """
    )


def die(conn: Connection, *, runs: int) -> None:
    """Have a worker claim runs, and its process die with them."""
    worker = a_worker(conn)
    assert len(store.claim_ready(conn, queue="default", limit=runs, worker=worker)) == (
        runs
    )
    worker_store.mark_dead(conn, workers=[worker])
    assert sweep(conn) == runs


def attempts(conn: Connection, table: str) -> list[int]:
    rows = conn.execute(f"SELECT attempt FROM {table} ORDER BY 1").fetchall()
    return [attempt for (attempt,) in rows]


@pytest.fixture
def job(conn: Connection) -> SeededJob:
    """A job that gets one attempt."""
    return make_job(conn, target=TASK, retry_policy={"max_attempts": 1})


def test_the_death_of_a_process_takes_no_attempt_from_what_it_executed(
    conn: Connection, job: SeededJob
) -> None:
    runs = make_ready(conn, job, count=3)
    die(conn, runs=3)
    assert attempts(conn, "chrono_timer_far") == [2, 2, 2]
    assert attempts(conn, "chrono_attempt") == [1, 1, 1]
    places = [(job.part, run) for run in runs]
    assert worker_store.load_deaths(conn, runs=places) == dict.fromkeys(runs, 1)


def test_what_was_there_at_two_deaths_is_set_aside(
    conn: Connection, job: SeededJob
) -> None:
    [first] = make_ready(conn, job)
    die(conn, runs=1)
    ready_again(conn)
    make_ready(conn, job)
    die(conn, runs=2)
    assert conn.execute(
        "SELECT run_id, gate, reason, attempt FROM chrono_blocked"
    ).fetchall() == [(first, "process_crash", Reason.PROCESS_CRASH, 3)]
    # The other was at one death.
    assert attempts(conn, "chrono_timer_far") == [2]
    assert is_told(conn, ["other", "default"])
    assert not is_told(conn, ["other"])


def is_told(conn: Connection, queues: list[str]) -> bool:
    """Return whether a worker of these queues is told that a run was set aside."""
    news = worker_store.beat_if_alive(conn, worker=a_worker(conn), queues=queues)
    assert news is not None
    return news.set_aside


def set_aside(conn: Connection, job: SeededJob) -> uuid.UUID:
    [run] = make_ready(conn, job)
    die(conn, runs=1)
    ready_again(conn)
    die(conn, runs=1)
    return run


def test_who_dies_alone_is_guilty(conn: Connection, job: SeededJob) -> None:
    run = set_aside(conn, job)
    worker = a_worker(conn, alone=True)
    [lease] = store.claim_set_aside(conn, queue="default", limit=1, worker=worker)
    assert (lease.run_id, lease.attempt) == (run, 3)
    worker_store.mark_dead(conn, workers=[worker])
    assert sweep(conn) == 1
    assert conn.execute("SELECT id, state, reason FROM chrono_run").fetchall() == [
        (run, RunState.DEAD, Reason.PROCESS_CRASH)
    ]
    [(errors,)] = conn.execute("SELECT errors FROM chrono_dead_letter").fetchall()
    assert [error["attempt"] for error in errors] == [1, 2, 3]
    assert errors[-1]["error"] == (
        "Its process ended 3 times while it ran; the last time it ran alone."
    )


def test_who_succeeds_alone_was_innocent(conn: Connection, job: SeededJob) -> None:
    run = set_aside(conn, job)
    worker = a_worker(conn, alone=True)
    [lease] = store.claim_set_aside(conn, queue="default", limit=9, worker=worker)
    settled = [store.Settlement(run_id=run, token=lease.token)]
    assert store.settle_if_leased(conn, settled, horizon=0) == {run}
    assert conn.execute("SELECT state FROM chrono_run").fetchall() == [(1,)]
    assert not is_told(conn, ["default"])


def test_a_silent_worker_takes_an_attempt_and_leaves_out_what_was_spared(
    conn: Connection,
) -> None:
    job = make_job(conn, target=TASK, retry_policy={"max_attempts": 2})
    make_ready(conn, job)
    die(conn, runs=1)
    for left in (1, 0):
        ready_again(conn)
        worker = a_worker(conn)
        store.claim_ready(conn, queue="default", limit=1, worker=worker)
        worker_store.stop_worker(conn, worker=worker)
        assert sweep(conn) == 1
        assert len(attempts(conn, "chrono_timer_far")) == left
    assert conn.execute("SELECT state, reason FROM chrono_run").fetchall() == [
        (RunState.DEAD, Reason.WORKER_LOST)
    ]


def test_what_was_set_aside_says_why_it_waits(conn: Connection, job: SeededJob) -> None:
    run = set_aside(conn, job)
    row, _ = get_run(conn, run, tenant=1)
    assert state_of(row) is RunState.PARKED
    assert "start one for it alone" in why_waiting(conn, row, DUE)


def test_a_process_for_what_was_set_aside_serves_no_queue(conn: Connection) -> None:
    a_worker(conn, alone=True)
    assert not worker_store.is_queue_served(conn, queue="default")
    a_worker(conn)
    assert worker_store.is_queue_served(conn, queue="default")


def test_what_was_set_aside_is_cancelled_at_once(
    conn: Connection, job: SeededJob
) -> None:
    run = set_aside(conn, job)
    assert cancel(conn, run) is RunState.CANCELLED
    worker = a_worker(conn, alone=True)
    assert store.claim_set_aside(conn, queue="default", limit=1, worker=worker) == []


def test_a_run_that_is_cancelled_while_it_is_rescued_never_runs_again(
    conn: Connection, job: SeededJob
) -> None:
    [run] = make_ready(conn, job)
    die(conn, runs=1)
    ready_again(conn)
    worker = a_worker(conn)
    store.claim_ready(conn, queue="default", limit=1, worker=worker)
    assert cancel(conn, run) is RunState.RUNNING
    worker_store.mark_dead(conn, workers=[worker])
    assert sweep(conn) == 1
    assert conn.execute("SELECT state FROM chrono_run").fetchall() == [
        (RunState.CANCELLED,)
    ]
    assert not is_told(conn, ["default"])


def test_two_that_are_alone_claim_different_runs(
    conn: Connection, job: SeededJob
) -> None:
    runs = {set_aside(conn, job), set_aside(conn, job)}
    claimed = {
        lease.run_id
        for _ in range(3)
        for lease in store.claim_set_aside(
            conn, queue="default", limit=1, worker=a_worker(conn, alone=True)
        )
    }
    assert claimed == runs
