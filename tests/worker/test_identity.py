"""Sessions hold their worker's identity: whoever loses some is not taken for dead."""

import threading

import pytest

from apps.runs.sweep import Sweep
from apps.runtime.clock import DatabaseClock
from apps.runtime.sessions import connect_upkeep
from apps.worker import beats
from chrono.rules.states import RunState
from tests.support.seed import make_job, make_ready
from tests.worker.support import running, settled, wait_for

GONE_AFTER = 2_000
"""What takes seconds takes less here; connecting takes what it takes."""
ROUNDS = 60


@pytest.fixture
def soon(monkeypatch):
    """Have a sweep that is less patient, and a beat that is as much quicker."""
    monkeypatch.setattr("apps.runs.sweep.GONE_AFTER", GONE_AFTER)
    monkeypatch.setattr("apps.runs.sweep.SESSIONS_BACK_AFTER", 0)
    monkeypatch.setattr(beats, "RETRY_AFTER", 20)
    monkeypatch.setattr(beats, "LONGEST_RETRY", 80)


class Sweeping:
    """A sweep that looks all the time."""

    def __init__(self, dsn):
        self._conn = connect_upkeep(dsn, name="test sweep")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.looks = 0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        self._conn.close()

    def _run(self):
        sweep, clock = Sweep(horizon=lambda: 0), DatabaseClock(self._conn)
        while not self._over.wait(0.005):
            sweep.step(self._conn, clock=clock)
            self.looks += 1


def living(conn):
    return conn.execute("SELECT id FROM chrono_worker WHERE NOT dead").fetchall()


def end_sessions(conn, names):
    return conn.execute(
        """
        SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity
        WHERE application_name = ANY(%s) AND datname = current_database()
        """,
        [[f"chrono worker {name}" for name in names]],
    ).fetchall()


@pytest.mark.parametrize(
    "sessions", [["beat"], ["beat", "claim", "settle", "listen"]], ids="+".join
)
def test_a_worker_whose_sessions_are_ended_again_and_again_lives(
    dsn, connect, soon, sessions
):
    conn = connect()
    begun, free = threading.Event(), threading.Event()

    def hold(payload):
        begun.set()
        free.wait()

    [run] = make_ready(conn, make_job(conn, target={"kind": "task", "name": "hold"}))
    with running(dsn, {"hold": hold}), Sweeping(dsn) as sweeping:
        assert begun.wait(5)
        [worker] = living(conn)
        ended = 0
        for _ in range(ROUNDS):
            looks = sweeping.looks
            ended += len(end_sessions(conn, sessions))
            wait_for(lambda looks=looks: sweeping.looks > looks + 2)
        assert ended >= ROUNDS / 2
        begun_again = (
            "SELECT FROM chrono_worker WHERE beat_at > now() - '1 s'::interval"
        )
        wait_for(lambda: conn.execute(begun_again).fetchall())
        assert living(conn) == [worker]
        free.set()
        assert settled(conn) == [(run, RunState.SUCCESS, None, 1, None)]
