"""Dead workers' runs come back, after several looks, and only theirs."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from apps.runs import store, worker_store
from apps.runs.sweep import ALL_ORPHANS_EVERY, SWEPT_AFTER, Sweep
from apps.runtime.clock import ManualClock
from apps.runtime.sessions import Connection, connect_hot
from apps.worker.beats import LONGEST_RETRY
from apps.worker.store import hold_identity
from chrono.rules.lease import (
    ALL_BEATEN_AFTER,
    BEAT_EVERY,
    CROWD_LOOK_AFTER,
    GONE_AFTER,
    LEASE_TTL,
    SECOND_LOOK_AFTER,
)
from chrono.rules.states import Reason, RunState
from tests.support.seed import DUE, make_job, make_ready
from tests.worker.support import wait_for

TASK = {"kind": "task", "name": "nothing"}
HORIZON = 0  # everything planned goes to the far table, which has no buckets


class Watch:
    """A sweep and the clock it goes by."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self.clock = ManualClock(DUE)
        self.sweep = Sweep(horizon=lambda: HORIZON)

    def look(self, after: int = 0) -> int:
        """Let so many milliseconds pass, then look; return how many runs came back."""
        self.clock.moment += after
        return self.sweep.step(self._conn, clock=self.clock)


@pytest.fixture
def watch(conn: Connection) -> Watch:
    """A sweep that has not looked yet."""
    return Watch(conn)


@pytest.fixture(autouse=True)
def server_up_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the test's server be up for long enough."""
    monkeypatch.setattr("apps.runs.sweep.SESSIONS_BACK_AFTER", 0)


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    """A hot session."""
    with connect_hot(dsn, name="test") as conn:
        yield conn


def a_worker(conn: Connection, *, silent_for: int = 0, held: bool = False) -> uuid.UUID:
    worker = uuid.uuid4()
    worker_store.register_worker(
        conn,
        worker=worker,
        host="t",
        pid=1,
        concurrency=9,
        queues=["default"],
        held=held,
    )
    conn.execute(
        "UPDATE chrono_worker SET beat_at = clock_timestamp() - %s * interval '1 ms' "
        "WHERE id = %s",
        [silent_for, worker],
    )
    return worker


def claim(conn: Connection, worker: uuid.UUID, runs: int = 1) -> None:
    """Have a worker hold the runs of a new job."""
    make_ready(conn, make_job(conn, target=TASK), count=runs)
    held = store.claim_ready(conn, queue="default", limit=runs, worker=worker)
    assert len(held) == runs


def is_dead(conn: Connection, worker: uuid.UUID) -> bool:
    [(dead,)] = conn.execute(
        "SELECT dead FROM chrono_worker WHERE id = %s", [worker]
    ).fetchall()
    return bool(dead)


def test_a_silent_worker_is_dead_at_the_second_look(
    conn: Connection, watch: Watch
) -> None:
    claim(conn, a_worker(conn), runs=9)
    job = make_job(conn, target=TASK)
    [run] = make_ready(conn, job)
    worker = a_worker(conn, silent_for=LEASE_TTL + 1)
    store.claim_ready(conn, queue="default", limit=1, worker=worker)
    assert watch.look() == 0
    assert watch.look(SECOND_LOOK_AFTER - 1) == 0
    assert watch.look(1) == 1
    [(ref, attempt)] = conn.execute(
        "SELECT ref, attempt FROM chrono_timer_far"
    ).fetchall()
    assert (ref, attempt) == (run, 2)
    assert conn.execute("SELECT reason FROM chrono_attempt").fetchall() == [
        (Reason.WORKER_LOST,)
    ]
    assert worker_store.beat_if_alive(conn, worker=worker) is None


def test_the_log_names_the_workers_that_died(
    conn: Connection, watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    claim(conn, a_worker(conn), runs=9)
    worker = a_worker(conn, silent_for=LEASE_TTL + 1)
    claim(conn, worker)
    watch.look()
    with caplog.at_level("WARNING", logger="chrono.runs"):
        watch.look(SECOND_LOOK_AFTER)
    [line] = caplog.records
    assert vars(line)["facts"] == {"workers": [str(worker)]}


def test_a_worker_that_beats_between_the_looks_lives(
    conn: Connection, watch: Watch
) -> None:
    worker = a_worker(conn, silent_for=LEASE_TTL + 1)
    claim(conn, worker)
    watch.look()
    assert worker_store.beat_if_alive(conn, worker=worker).cancelled == []
    assert watch.look(CROWD_LOOK_AFTER) == 0
    assert len(store.list_leases(conn, worker=worker)) == 1


def test_who_was_watched_before_its_lease_ended_is_dead_when_it_ends(
    conn: Connection, watch: Watch
) -> None:
    worker = a_worker(conn, silent_for=LEASE_TTL - SECOND_LOOK_AFTER)
    watch.look()
    watch.look(SECOND_LOOK_AFTER)
    assert not is_dead(conn, worker)
    age(conn, worker, SECOND_LOOK_AFTER)
    watch.look()
    assert is_dead(conn, worker)


def age(conn: Connection, worker: uuid.UUID, millis: int) -> None:
    """Move a worker's last beat back."""
    conn.execute(
        "UPDATE chrono_worker SET beat_at = beat_at - %s * interval '1 ms' "
        "WHERE id = %s",
        [millis, worker],
    )


@pytest.mark.parametrize(
    ("theirs", "others", "wait"),
    [(1, 4, SECOND_LOOK_AFTER), (2, 7, CROWD_LOOK_AFTER), (5, 0, CROWD_LOOK_AFTER)],
)
def test_more_than_a_fifth_of_all_leases_end_after_a_look_ten_seconds_later_alone(
    conn: Connection, watch: Watch, theirs: int, others: int, wait: int
) -> None:
    if others:
        claim(conn, a_worker(conn), runs=others)
    claim(conn, a_worker(conn, silent_for=LEASE_TTL), runs=theirs)
    assert watch.look() == 0
    assert watch.look(wait - 1) == 0
    assert watch.look(1) == theirs


def test_a_clock_that_jumps_ahead_ends_no_lease_of_who_beats(
    conn: Connection, watch: Watch
) -> None:
    workers = [a_worker(conn, silent_for=3_600_000) for _ in range(4)]
    for worker in workers:
        claim(conn, worker, runs=5)
    # Each beats when its ten seconds are over, the last one just in time.
    for second in range(30):
        watch.look(1_000)
        if second < 8 and second % 2:
            worker_store.beat_if_alive(conn, worker=workers[second // 2])
    assert not any(is_dead(conn, worker) for worker in workers)


def test_a_beat_from_before_the_clock_was_put_back_is_no_sign_of_life(
    conn: Connection, watch: Watch
) -> None:
    worker = a_worker(conn, silent_for=-3_600_000)
    watch.look()
    watch.look(SECOND_LOOK_AFTER)
    assert is_dead(conn, worker)


def test_nobody_is_taken_for_dead_before_all_could_beat_again(
    conn: Connection, watch: Watch
) -> None:
    worker = a_worker(conn, silent_for=LEASE_TTL + 1)
    watch.look()
    watch.sweep.be_patient(DUE)
    for wait in (2_000, ALL_BEATEN_AFTER - 2_001, 1):
        watch.look(wait)
    assert is_dead(conn, worker) is False
    watch.look(SECOND_LOOK_AFTER)
    assert is_dead(conn, worker) is True


def test_who_has_no_session_left_is_dead_after_five_seconds(
    conn: Connection, watch: Watch
) -> None:
    worker = a_worker(conn, held=True)
    claim(conn, worker)
    assert watch.look() == 0
    assert watch.look(GONE_AFTER - 1) == 0
    assert watch.look(1) == 1
    assert is_dead(conn, worker)


def test_one_session_that_holds_the_identity_is_enough(
    conn: Connection, dsn: str, watch: Watch
) -> None:
    worker = a_worker(conn, held=True)
    with connect_hot(dsn, name="test") as session:
        hold_identity(session, worker=worker)
        for _ in range(30):
            watch.look(1_000)
        assert not is_dead(conn, worker)
    wait_for(lambda: worker_store.look_at_workers(conn, quiet=LEASE_TTL).gone)
    watch.look()
    watch.look(GONE_AFTER)
    assert is_dead(conn, worker)


def test_a_session_held_elsewhere_is_none_of_the_worker_s(
    conn: Connection, dsn: str, watch: Watch
) -> None:
    worker = a_worker(conn, held=True)
    with connect_hot(dsn, name="test") as session:
        hold_identity(session, worker=uuid.uuid4())
        watch.look()
        watch.look(GONE_AFTER)
    assert is_dead(conn, worker)


def test_who_beat_since_its_sessions_were_missed_lives(
    conn: Connection, watch: Watch
) -> None:
    worker = a_worker(conn, held=True)
    for _ in range(10):
        watch.look(GONE_AFTER)
        # On a session that ends before the next look.
        worker_store.beat_if_alive(conn, worker=worker)
    assert not is_dead(conn, worker)


def test_who_never_held_its_identity_has_its_lease(
    conn: Connection, watch: Watch
) -> None:
    worker = a_worker(conn)
    for _ in range(10):
        watch.look(GONE_AFTER)
    assert not is_dead(conn, worker)


def test_a_server_that_just_started_has_no_session_of_anybody(
    conn: Connection, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.runs.sweep.SESSIONS_BACK_AFTER", 1 << 40)
    worker = a_worker(conn, held=True)
    for _ in range(10):
        watch.look(GONE_AFTER)
    assert not is_dead(conn, worker)


def test_one_look_a_second_is_one_statement_while_nobody_dies(
    conn: Connection, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        claim(conn, a_worker(conn, held=False), runs=5)
    watch.look()
    said: list[str] = []
    execute = conn.execute

    def listen(query: str, *args: Any, **options: Any) -> Any:
        said.append(query)
        return execute(query, *args, **options)

    monkeypatch.setattr(conn, "execute", listen)
    for _ in range(20):
        watch.look(1_000)
    assert len(said) == 20


def test_what_a_dead_worker_s_open_claim_brings_comes_back_too(
    conn: Connection, watch: Watch
) -> None:
    worker = a_worker(conn)
    worker_store.stop_worker(conn, worker=worker)
    watch.look()
    claim(conn, worker)
    assert watch.look(1_000) == 1
    watch.look(SWEPT_AFTER)
    [(swept,)] = conn.execute("SELECT swept FROM chrono_worker").fetchall()
    assert swept
    claim(conn, worker)
    assert watch.look(ALL_ORPHANS_EVERY) == 1


def test_patience_has_time_for_a_beat_and_the_longest_pause_between_tries() -> None:
    assert ALL_BEATEN_AFTER > BEAT_EVERY + LONGEST_RETRY
    assert ALL_BEATEN_AFTER < LEASE_TTL


def test_a_lease_without_a_worker_row_is_an_orphan(conn: Connection) -> None:
    job = make_job(conn, target=TASK)
    make_ready(conn, job, count=3)
    store.claim_ready(conn, queue="default", limit=3, worker=uuid.uuid4())
    assert Watch(conn).look() == 3


def test_a_run_that_loses_its_last_attempt_is_dead(conn: Connection) -> None:
    job = make_job(
        conn, target=TASK, retry_policy={"max_attempts": 2}, payload={"n": 1}
    )
    [run] = make_ready(conn, job, attempt=2)
    store.claim_ready(conn, queue="default", limit=1, worker=uuid.uuid4())
    assert Watch(conn).look() == 1
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
    assert Watch(conn).look() == 1
    assert conn.execute("SELECT payload::text FROM chrono_dead_letter").fetchall() == [
        ("9" * 5_000,)
    ]


def test_a_deleted_job_s_run_is_cancelled(conn: Connection) -> None:
    job = make_job(conn, target=TASK, deleted=True)
    make_ready(conn, job)
    store.claim_ready(conn, queue="default", limit=1, worker=uuid.uuid4())
    Watch(conn).look()
    assert conn.execute("SELECT state, reason FROM chrono_run").fetchall() == [
        (RunState.CANCELLED, Reason.DELETED)
    ]
