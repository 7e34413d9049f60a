"""The sweeper of a leader: whom it buries, and when it waits."""

import uuid
from collections.abc import Callable, Iterator

import pytest

from apps.runs import worker_store
from apps.runtime.clock import ManualClock
from apps.runtime.sessions import Connection, connect_upkeep
from apps.scheduler.sweeper import Sweeper
from chrono.rules.instants import to_millis
from chrono.rules.lease import (
    ALL_BEATEN_AFTER,
    GONE_AFTER,
    SESSIONS_BACK_AFTER,
    SWEEP_EVERY,
)
from tests.worker.support import wait_for

MOST_LOOKS = 60


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    """A session to look with."""
    with connect_upkeep(dsn, name="test look") as conn:
        yield conn


@pytest.fixture
def clock(conn: Connection) -> ManualClock:
    """A clock that stands at the database's time."""
    [(now,)] = conn.execute("SELECT clock_timestamp()").fetchall()
    return ManualClock(to_millis(now.replace(microsecond=0)))


@pytest.fixture
def new_sweeper(dsn: str, clock: ManualClock) -> Iterator[Callable[..., Sweeper]]:
    """Make sweepers that keep."""
    made: list[Sweeper] = []

    def make(*, lost: bool = False) -> Sweeper:
        made.append(
            Sweeper(
                lambda: connect_upkeep(dsn, name="test sweep"),
                clock,
                leads=lambda: True,
                lost=lost,
            )
        )
        return made[-1]

    yield make
    for sweeper in made:
        sweeper.stop()
        sweeper.close()


@pytest.fixture
def server_up_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the server be up for as long as sessions need to be back."""
    look = worker_store.look_at_workers

    def long_after(conn: Connection, *, quiet: int) -> worker_store.Look:
        seen = look(conn, quiet=quiet)
        return worker_store.Look(
            at=seen.at,
            up_for=SESSIONS_BACK_AFTER,
            silent=seen.silent,
            gone=seen.gone,
            dead=seen.dead,
        )

    monkeypatch.setattr(worker_store, "look_at_workers", long_after)


def a_worker(conn: Connection, *, held: bool = False, silent: bool = False) -> None:
    """Register a worker without a session; a silent one's lease is long over."""
    worker_store.register_worker(
        conn,
        worker=uuid.uuid4(),
        host="t",
        pid=1,
        concurrency=1,
        queues=["default"],
        held=held,
    )
    if silent:
        conn.execute("UPDATE chrono_worker SET beat_at = now() - interval '1 h'")


def is_dead(conn: Connection) -> bool:
    [(dead,)] = conn.execute("SELECT dead FROM chrono_worker").fetchall()
    return bool(dead)


def buried_after(conn: Connection, sweeper: Sweeper, clock: ManualClock) -> int:
    """Step until the worker is dead; return how long that took."""
    begun = clock.moment
    for _ in range(MOST_LOOKS):
        sweeper.step()
        sweeper.keeps = True
        if is_dead(conn):
            return clock.moment - begun
        clock.moment += SWEEP_EVERY
    raise AssertionError("nobody was buried")


def test_a_new_keeper_takes_nobody_s_silence_for_death_at_once(
    conn: Connection, new_sweeper: Callable[..., Sweeper], clock: ManualClock
) -> None:
    a_worker(conn, silent=True)
    assert buried_after(conn, new_sweeper(), clock) > ALL_BEATEN_AFTER


def test_after_a_jump_of_the_database_s_clock_silence_is_waited_out_too(
    conn: Connection,
    new_sweeper: Callable[..., Sweeper],
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sweeper = new_sweeper()
    sweeper.step()
    sweeper.keeps = True
    clock.moment += ALL_BEATEN_AFTER
    a_worker(conn, silent=True)
    with monkeypatch.context() as patch:
        patch.setattr("apps.runs.sweep.strayed", lambda clock, told, since: True)
        sweeper.step()
    assert buried_after(conn, sweeper, clock) >= ALL_BEATEN_AFTER


@pytest.mark.usefixtures("server_up_long")
def test_who_has_no_session_left_is_dead_after_five_seconds_under_any_keeper(
    conn: Connection, new_sweeper: Callable[..., Sweeper], clock: ManualClock
) -> None:
    a_worker(conn, held=True)
    assert buried_after(conn, new_sweeper(), clock) == GONE_AFTER


@pytest.mark.usefixtures("server_up_long")
def test_a_process_that_lost_its_own_sessions_waits_for_those_of_the_workers(
    conn: Connection, new_sweeper: Callable[..., Sweeper], clock: ManualClock
) -> None:
    a_worker(conn, held=True)
    sweeper = new_sweeper(lost=True)
    assert buried_after(conn, sweeper, clock) == SESSIONS_BACK_AFTER + GONE_AFTER


@pytest.mark.usefixtures("server_up_long")
def test_a_sweeper_whose_session_is_ended_distrusts_sessions_from_then_on(
    conn: Connection, new_sweeper: Callable[..., Sweeper], clock: ManualClock
) -> None:
    a_worker(conn, held=True)
    sweeper = new_sweeper()
    sweeper.step()
    conn.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE application_name = 'test sweep' AND datname = current_database()"
    )
    sweeper.every_s = 0.01
    sweeper.start()
    wait_for(lambda: sweeper._sweep._sessions_from)
    sweeper.stop()
    clock.moment += GONE_AFTER
    sweeper.step()
    assert not is_dead(conn)
    assert buried_after(conn, sweeper, clock) == SESSIONS_BACK_AFTER
