"""One run is cancelled wherever it waits, flagged where it runs, and only once."""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from apps.queue import withdrawals
from apps.runs import store, worker_store
from apps.runs.cancel import RunNotFound, cancel
from apps.runs.store import Settlement
from apps.runtime.sessions import Connection, connect_hot, connect_upkeep
from apps.timers import buckets
from apps.timers.store import TIMERS
from chrono.rules.instants import HOUR, Millis, parse_instant
from chrono.rules.keys import partition_of_run, run_id
from chrono.rules.states import Outcome, Reason, RunState, TimerKind
from tests.support import pg
from tests.support.seed import SeededJob, make_job, make_ready

NOON: Millis = parse_instant("2055-03-01T12:00:00Z")
Background = Callable[..., Future[Any]]
TASK = {"kind": "task", "name": "nothing"}


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    """A hot session on a database with buckets around noon."""
    with connect_upkeep(dsn, name="test upkeep") as upkeep:
        upkeep.execute(
            "UPDATE chrono_dispatch_state SET horizon = to_timestamp(%s / 1000.0)",
            [NOON - HOUR],
        )
        buckets.ensure_buckets(upkeep, now=NOON)
    with connect_hot(dsn, name="test") as conn:
        yield conn


@pytest.fixture
def job(conn: Connection) -> SeededJob:
    """A job of which there are runs."""
    return make_job(conn, target=TASK)


def put_timer(
    conn: Connection, job: SeededJob, *, kind: TimerKind, table: str = "chrono_timer"
) -> uuid.UUID:
    """Write a timer due at noon and return its run."""
    run = run_id(job.id, NOON, 0, job.part)
    conn.execute(
        f"INSERT INTO {table} (due_at, scheduled_for, ref, job_id, version, revision, "
        "part, kind, attempt) VALUES (to_timestamp(%(at)s / 1000.0), "
        "to_timestamp(%(at)s / 1000.0), %(run)s, %(job)s, 1, 1, %(part)s, %(kind)s, 2)",
        {"at": NOON, "run": run, "job": job.id, "part": job.part, "kind": kind},
    )
    return run


def claim(conn: Connection) -> tuple[uuid.UUID, list[store.Lease]]:
    worker = uuid.uuid4()
    worker_store.register_worker(
        conn, worker=worker, host="t", pid=1, concurrency=9, queues=["default"]
    )
    return worker, store.claim_ready(conn, queue="default", limit=9, worker=worker)


def places(conn: Connection, run: uuid.UUID) -> list[str]:
    found = store.locate_run(conn, run=run, part=partition_of_run(run))
    return sorted(place.table for place in found)


def history(conn: Connection) -> list[tuple[uuid.UUID, int, int | None]]:
    return conn.execute(  # type: ignore[return-value]
        "SELECT id, state, reason FROM chrono_run"
    ).fetchall()


@pytest.mark.parametrize("table", TIMERS)
def test_a_retry_that_waits_is_ended(
    conn: Connection, job: SeededJob, table: str
) -> None:
    run = put_timer(conn, job, kind=TimerKind.RETRY, table=table)
    assert cancel(conn, run) is RunState.CANCELLED
    assert history(conn) == [(run, RunState.CANCELLED, Reason.OPERATOR)]
    assert places(conn, run) == ["run"]
    # Its occurrence was decided when it fired first.
    assert conn.execute("SELECT count(*) FROM chrono_occurrence").fetchone() == (0,)
    [(tenant, attempt)] = conn.execute(
        "SELECT tenant, attempt FROM chrono_run"
    ).fetchall()
    assert (tenant, attempt) == (1, 2)


@pytest.mark.parametrize("kind", [TimerKind.LATE, TimerKind.MANUAL])
def test_an_occurrence_that_waits_is_decided_as_skipped(
    conn: Connection, job: SeededJob, kind: TimerKind
) -> None:
    run = put_timer(conn, job, kind=kind)
    assert cancel(conn, run, reason=Reason.REPLACED) is RunState.CANCELLED
    assert history(conn) == [(run, RunState.CANCELLED, Reason.REPLACED)]
    assert conn.execute(
        "SELECT run_id, outcome, reason, kind FROM chrono_occurrence"
    ).fetchall() == [(run, Outcome.SKIPPED, Reason.REPLACED, kind)]


def test_a_ready_run_is_final_at_once_and_never_claimed(
    conn: Connection, job: SeededJob
) -> None:
    first, second = make_ready(conn, job, count=2)
    assert cancel(conn, first) is RunState.CANCELLED
    assert history(conn) == [(first, RunState.CANCELLED, Reason.OPERATOR)]
    _, leases = claim(conn)
    assert [lease.run_id for lease in leases] == [second]
    assert withdrawals.clear(conn) == 1
    assert places(conn, first) == ["run"]


def test_a_running_run_is_flagged_and_its_worker_told(
    conn: Connection, job: SeededJob
) -> None:
    run, other = make_ready(conn, job, count=2)
    worker, _ = claim(conn)
    assert worker_store.beat_if_alive(conn, worker=worker).cancelled == []
    assert cancel(conn, run) is RunState.RUNNING
    assert worker_store.beat_if_alive(conn, worker=worker).cancelled == [run]
    assert history(conn) == []
    assert places(conn, run) == ["lease"]
    assert places(conn, other) == ["lease"]


@pytest.mark.parametrize("state", [RunState.SUCCESS, RunState.DEAD])
def test_what_is_settled_stays_as_it_is(
    conn: Connection, job: SeededJob, state: RunState
) -> None:
    [run] = make_ready(conn, job)
    _, [lease] = claim(conn)
    verdict = Settlement(run_id=run, token=lease.token, state=state, reason=17)
    store.settle_if_leased(conn, [verdict], horizon=NOON)
    assert cancel(conn, run) is state
    assert [(r, s) for r, s, _ in history(conn)] == [(run, state)]


def test_a_run_that_outlived_its_day_is_found_too(
    conn: Connection, job: SeededJob
) -> None:
    [run] = make_ready(conn, job)
    cancel(conn, run)
    conn.execute("INSERT INTO chrono_run_kept SELECT * FROM chrono_run")
    conn.execute("DELETE FROM chrono_run")
    conn.execute("DELETE FROM chrono_ready")
    assert cancel(conn, run) is RunState.CANCELLED


def test_a_second_time_changes_nothing(conn: Connection, job: SeededJob) -> None:
    [run] = make_ready(conn, job)
    assert cancel(conn, run) is RunState.CANCELLED
    assert cancel(conn, run, reason=Reason.REPLACED) is RunState.CANCELLED
    withdrawals.clear(conn)
    assert cancel(conn, run) is RunState.CANCELLED
    assert history(conn) == [(run, RunState.CANCELLED, Reason.OPERATOR)]


def test_there_is_no_such_run(conn: Connection, job: SeededJob) -> None:
    with pytest.raises(RunNotFound, match="There is no such run"):
        cancel(conn, run_id(job.id, NOON, 0, job.part))


def test_a_schedule_s_own_timer_is_no_run(conn: Connection, job: SeededJob) -> None:
    conn.execute(
        "INSERT INTO chrono_timer (due_at, scheduled_for, ref, job_id, version, "
        "revision, part, kind) VALUES (to_timestamp(%s / 1000.0), "
        "to_timestamp(%s / 1000.0), %s, %s, 1, 1, %s, 1)",
        [NOON, NOON, job.id, job.id, job.part],
    )
    with pytest.raises(RunNotFound):
        cancel(conn, run_id(job.id, NOON, 0, job.part))
    assert conn.execute("SELECT count(*) FROM chrono_timer").fetchone() == (1,)


def test_a_fire_that_has_the_run_is_waited_for_and_comes_to_nothing(
    conn: Connection,
    job: SeededJob,
    connect: Callable[..., pg.Connection],
    background: Background,
) -> None:
    fire, observer = connect(), connect()
    run = put_timer(conn, job, kind=TimerKind.RETRY)
    with fire.transaction(force_rollback=True):
        fire.execute("DELETE FROM chrono_timer")
        cancelled = background(cancel, conn, run)
        pg.wait_until_blocked(observer, conn.info.backend_pid)
    assert cancelled.result(timeout=10) is RunState.CANCELLED
    assert history(conn) == [(run, RunState.CANCELLED, Reason.OPERATOR)]


def test_a_run_that_a_fire_made_ready_meanwhile_is_found_there(
    conn: Connection,
    job: SeededJob,
    connect: Callable[..., pg.Connection],
    background: Background,
) -> None:
    fire, observer = connect(), connect()
    run = put_timer(conn, job, kind=TimerKind.RETRY)
    with fire.transaction():
        fire.execute("DELETE FROM chrono_timer")
        [made] = make_ready(fire, job, due_at=NOON)
        assert made == run
        cancelled = background(cancel, conn, run)
        pg.wait_until_blocked(observer, conn.info.backend_pid)
    assert cancelled.result(timeout=10) is RunState.CANCELLED
    assert claim(conn)[1] == []
