"""Dead workers' runs come back, after two looks, and only theirs."""

import uuid
from collections.abc import Iterator

import pytest

from apps.runs import store
from apps.runs.sweep import Sweep
from apps.runtime.sessions import Connection, connect_hot
from apps.worker.beats import LONGEST_RETRY
from chrono.rules.lease import ALL_BEATEN_AFTER, BEAT_EVERY, LEASE_TTL
from chrono.rules.states import Reason, RunState
from tests.support.seed import DUE, make_job, make_ready

TASK = {"kind": "task", "name": "nothing"}
HORIZON = 0  # everything planned goes to the far table, which has no buckets


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    """A hot session."""
    with connect_hot(dsn, name="test") as conn:
        yield conn


def a_worker(conn: Connection, *, silent_for: int = 0) -> uuid.UUID:
    worker = uuid.uuid4()
    store.register_worker(
        conn, worker=worker, host="t", pid=1, concurrency=9, queues=["default"]
    )
    conn.execute(
        "UPDATE chrono_worker SET beat_at = clock_timestamp() - %s * interval '1 ms' "
        "WHERE id = %s",
        [silent_for, worker],
    )
    return worker


def is_dead(conn: Connection, worker: uuid.UUID) -> bool:
    [(dead,)] = conn.execute(
        "SELECT dead FROM chrono_worker WHERE id = %s", [worker]
    ).fetchall()
    return bool(dead)


def test_a_silent_worker_is_dead_at_the_second_look(conn: Connection) -> None:
    job = make_job(conn, target=TASK)
    [run] = make_ready(conn, job)
    worker = a_worker(conn, silent_for=LEASE_TTL + 1)
    store.claim_ready(conn, queue="default", limit=1, worker=worker)
    sweep = Sweep()
    assert sweep.step(conn, now=DUE, horizon=HORIZON) == 0
    assert sweep.step(conn, now=DUE, horizon=HORIZON) == 1
    [(ref, attempt)] = conn.execute(
        "SELECT ref, attempt FROM chrono_timer_far"
    ).fetchall()
    assert (ref, attempt) == (run, 2)
    assert conn.execute("SELECT reason FROM chrono_attempt").fetchall() == [
        (Reason.WORKER_LOST,)
    ]
    assert store.beat_if_alive(conn, worker=worker) is None


def test_a_worker_that_beats_between_the_looks_lives(conn: Connection) -> None:
    job = make_job(conn, target=TASK)
    make_ready(conn, job)
    worker = a_worker(conn, silent_for=LEASE_TTL + 1)
    store.claim_ready(conn, queue="default", limit=1, worker=worker)
    sweep = Sweep()
    sweep.step(conn, now=DUE, horizon=HORIZON)
    assert store.beat_if_alive(conn, worker=worker) == []
    assert sweep.step(conn, now=DUE, horizon=HORIZON) == 0
    assert len(store.list_leases(conn, worker=worker)) == 1


def test_nobody_is_taken_for_dead_before_all_could_beat_again(
    conn: Connection,
) -> None:
    worker = a_worker(conn, silent_for=LEASE_TTL + 1)
    sweep = Sweep()
    sweep.step(conn, now=DUE, horizon=HORIZON)
    sweep.be_patient(DUE)
    for now in (DUE + 2_000, DUE + ALL_BEATEN_AFTER - 1, DUE + ALL_BEATEN_AFTER):
        sweep.step(conn, now=now, horizon=HORIZON)
    assert is_dead(conn, worker) is False
    sweep.step(conn, now=DUE + ALL_BEATEN_AFTER + 2_000, horizon=HORIZON)
    assert is_dead(conn, worker) is True


def test_patience_has_time_for_a_beat_and_the_longest_pause_between_tries() -> None:
    assert ALL_BEATEN_AFTER > BEAT_EVERY + LONGEST_RETRY
    assert ALL_BEATEN_AFTER < LEASE_TTL


def test_a_lease_without_a_worker_row_is_an_orphan(conn: Connection) -> None:
    job = make_job(conn, target=TASK)
    make_ready(conn, job, count=3)
    store.claim_ready(conn, queue="default", limit=3, worker=uuid.uuid4())
    assert Sweep().step(conn, now=DUE, horizon=HORIZON) == 3


def test_a_run_that_loses_its_last_attempt_is_dead(conn: Connection) -> None:
    job = make_job(
        conn, target=TASK, retry_policy={"max_attempts": 2}, payload={"n": 1}
    )
    [run] = make_ready(conn, job, attempt=2)
    store.claim_ready(conn, queue="default", limit=1, worker=uuid.uuid4())
    assert Sweep().step(conn, now=DUE, horizon=HORIZON) == 1
    assert conn.execute("SELECT id, state FROM chrono_run").fetchall() == [
        (run, RunState.DEAD)
    ]
    [(payload, errors)] = conn.execute(
        "SELECT payload, errors FROM chrono_dead_letter"
    ).fetchall()
    assert payload == {"n": 1}
    assert errors[0]["attempt"] == 2


def test_a_payload_that_python_cannot_read_does_not_stop_the_sweep(
    conn: Connection,
) -> None:
    job = make_job(conn, target=TASK, retry_policy={"max_attempts": 1}, payload={})
    conn.execute(
        "UPDATE chrono_job_revision SET payload = %s::text::jsonb", ["9" * 5_000]
    )
    make_ready(conn, job)
    store.claim_ready(conn, queue="default", limit=1, worker=uuid.uuid4())
    assert Sweep().step(conn, now=DUE, horizon=HORIZON) == 1
    assert conn.execute("SELECT payload::text FROM chrono_dead_letter").fetchall() == [
        ("9" * 5_000,)
    ]


def test_a_deleted_job_s_run_is_cancelled(conn: Connection) -> None:
    job = make_job(conn, target=TASK, deleted=True)
    make_ready(conn, job)
    store.claim_ready(conn, queue="default", limit=1, worker=uuid.uuid4())
    Sweep().step(conn, now=DUE, horizon=HORIZON)
    assert conn.execute("SELECT state, reason FROM chrono_run").fetchall() == [
        (RunState.CANCELLED, Reason.DELETED)
    ]
