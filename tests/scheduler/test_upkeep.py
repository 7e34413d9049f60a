"""The keeper of the tables on a fresh database."""

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any

import psycopg
import pytest

from apps.jobs.watch import Watch
from apps.runtime.clock import ManualClock
from apps.runtime.sessions import Connection, connect_upkeep
from apps.runtime.sql import Statement
from apps.scheduler import store
from apps.scheduler.upkeep import Upkeep
from apps.timers.store import read_dispatch_state
from chrono.rules.instants import Millis, to_millis
from tests.support import pg
from tests.support.seed import make_job, make_ready

HOUR: Millis = 3_600_000


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
def upkeep(dsn: str, clock: ManualClock) -> Iterator[Upkeep]:
    """A keeper that keeps."""
    keeper = Upkeep(
        lambda: connect_upkeep(dsn, name="test upkeep"), clock, leads=lambda: True
    )
    yield keeper
    keeper.stop()
    keeper.close()


def leaves(conn: Connection, parent: str) -> set[str]:
    rows = conn.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits "
        "WHERE inhparent = %s::regclass",
        [parent],
    ).fetchall()
    return {name for (name,) in rows}


def test_a_day_ahead_has_its_buckets_before_anything_fires(
    conn: Connection, upkeep: Upkeep, clock: ManualClock
) -> None:
    upkeep.prepare()
    assert read_dispatch_state(conn).horizon >= clock.moment + 26 * HOUR
    assert len(leaves(conn, "chrono_timer")) >= 27
    for parent in ("chrono_run", "chrono_attempt", "chrono_occurrence"):
        assert len(leaves(conn, parent)) == 7  # six days and the default


def test_preparing_again_changes_nothing(conn: Connection, upkeep: Upkeep) -> None:
    upkeep.prepare()
    before = leaves(conn, "chrono_timer") | leaves(conn, "chrono_run")
    upkeep.prepare()
    assert leaves(conn, "chrono_timer") | leaves(conn, "chrono_run") == before


def test_time_passing_brings_new_buckets_and_drops_old_ones(
    conn: Connection, upkeep: Upkeep, clock: ManualClock
) -> None:
    upkeep.prepare()
    before = leaves(conn, "chrono_timer")
    clock.moment += 10 * HOUR
    upkeep.step()
    after = leaves(conn, "chrono_timer")
    assert after - before
    assert len(before - after) >= 7
    assert read_dispatch_state(conn).horizon >= clock.moment + 26 * HOUR


def test_days_go_when_they_are_over_and_what_failed_is_kept(
    conn: Connection, upkeep: Upkeep, clock: ManualClock
) -> None:
    upkeep.prepare()
    conn.execute(
        "INSERT INTO chrono_run (due_at, finished_at, id, job_id, fence, revision, "
        "tenant, part, state, attempt) "
        "SELECT now(), now(), (lpad(to_hex(%s), 12, '0') || '8000800000000000000' || s)"
        "::uuid, gen_random_uuid(), 1, 1, 1, 1, s, 1 FROM (VALUES (1), (3)) v (s)",
        [clock.moment],
    )
    clock.moment += 9 * 24 * HOUR
    upkeep.step()
    assert conn.execute("SELECT count(*) FROM chrono_run").fetchone() == (0,)
    assert conn.execute("SELECT state FROM chrono_run_kept").fetchall() == [(3,)]
    clock.moment += 31 * 24 * HOUR
    upkeep.step()
    assert conn.execute("SELECT count(*) FROM chrono_run_kept").fetchone() == (0,)


def test_rows_in_a_default_leaf_move_into_their_day(
    conn: Connection, upkeep: Upkeep, clock: ManualClock
) -> None:
    conn.execute(
        "INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence, version, "
        "revision, part, outcome, kind) VALUES (to_timestamp(%s / 1000), "
        "gen_random_uuid(), gen_random_uuid(), 1, 1, 1, 1, 1, 1)",
        [clock.moment],
    )
    assert conn.execute(
        "SELECT count(*) FROM chrono_occurrence_default"
    ).fetchone() == (1,)
    upkeep.prepare()
    assert conn.execute(
        "SELECT count(*) FROM chrono_occurrence_default"
    ).fetchone() == (0,)
    assert conn.execute("SELECT count(*) FROM chrono_occurrence").fetchone() == (1,)


def test_far_timers_move_into_their_bucket_when_it_is_made(
    conn: Connection, upkeep: Upkeep, clock: ManualClock
) -> None:
    conn.execute(
        "INSERT INTO chrono_timer_far (due_at, scheduled_for, ref, job_id, version, "
        "revision, part, kind) SELECT t, t, j, j, 1, 1, 5, 1 FROM (SELECT "
        "to_timestamp(%s / 1000) AS t, gen_random_uuid() AS j) x",
        [clock.moment + 3 * HOUR],
    )
    upkeep.prepare()
    assert conn.execute("SELECT count(*) FROM chrono_timer_far").fetchone() == (0,)
    assert conn.execute("SELECT count(*) FROM chrono_timer").fetchone() == (1,)


def test_a_piece_of_work_that_fails_oddly_does_not_end_the_keeper(
    conn: Connection,
    upkeep: Upkeep,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tried = queue.SimpleQueue[int]()

    def fail() -> None:
        tried.put(1)
        raise ValueError("odd")

    upkeep.every_s = 0.01
    monkeypatch.setattr(upkeep, "step", fail)
    upkeep.start()
    assert [tried.get(timeout=10) for _ in range(2)] == [1, 1]
    upkeep.stop()
    assert "upkeep failed" in caplog.text


def test_keys_of_requests_and_sessions_that_are_over_are_deleted(
    conn: Connection, upkeep: Upkeep
) -> None:
    for key, age in (("old", "25 hours"), ("new", "23 hours")):
        conn.execute(
            """
            INSERT INTO chrono_request_key (tenant, key, method, path, fingerprint,
                status, headers, answer, created_at)
            VALUES (1, %s, 'POST', '/', sha256(''), 200, '{}', '1',
                now() - %s::interval)
            """,
            [key, age],
        )
        conn.execute(
            "INSERT INTO django_session (session_key, session_data, expire_date)"
            " VALUES (%s, '', now() + interval '24 hours' - %s::interval)",
            [key, age],
        )
    upkeep.prepare()
    upkeep.step()
    for table, column in (
        ("chrono_request_key", "key"),
        ("django_session", "session_key"),
    ):
        assert conn.execute(f"SELECT {column} FROM {table}").fetchall() == [("new",)]


def test_the_log_names_who_keeps_our_sessions_waiting(
    conn: Connection,
    upkeep: Upkeep,
    connect: Callable[..., Connection],
    background: Callable[..., Future[object]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    upkeep.prepare()
    monkeypatch.setattr("apps.scheduler.upkeep.LOCKED_FOR", 0)
    holder, waiter = connect(), connect()
    holder.execute("SET application_name = 'forgetful'")
    holder.execute("BEGIN; LOCK TABLE chrono_run")
    waiter.execute("SET application_name = 'chrono fire'")
    done = background(waiter.execute, "SELECT FROM chrono_run")
    pg.wait_until_blocked(conn, waiter.info.backend_pid)
    upkeep._name_blockers(conn)
    [line] = [r.message for r in caplog.records if "waits for a lock" in r.message]
    assert line.startswith(
        "a session of chrono fire waits for a lock of "
        f"pid {holder.info.backend_pid} (forgetful), its transaction is "
    )
    holder.execute("ROLLBACK")
    done.result(timeout=5)
    caplog.clear()
    upkeep._name_blockers(conn)
    assert not caplog.records


def test_a_table_that_somebody_locks_does_not_keep_the_log_from_naming_them(
    conn: Connection,
    upkeep: Upkeep,
    connect: Callable[..., Connection],
    background: Callable[..., Future[object]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    upkeep.prepare()
    monkeypatch.setattr("apps.scheduler.upkeep.LOCKED_FOR", 0)
    holder, waiter = connect(), connect()
    holder.execute("BEGIN; LOCK TABLE chrono_job")
    waiter.execute("SET application_name = 'chrono fire'")
    done = background(waiter.execute, "SELECT FROM chrono_job")
    pg.wait_until_blocked(conn, waiter.info.backend_pid)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        upkeep.step()
    assert f"pid {holder.info.backend_pid} " in caplog.text
    holder.execute("ROLLBACK")
    done.result(timeout=5)


MADE = {
    "pauses": "UPDATE chrono_job SET paused = true, paused_until = now()",
    "given_back": "INSERT INTO chrono_given_back SELECT part, id, id FROM chrono_job",
    "deaths": "INSERT INTO chrono_dead_letter (run_id, part, tenant, job_id, revision, "
    "queue, reason, attempt, errors) SELECT id, part, 1, id, 1, '', 1, 1, '[]' "
    "FROM chrono_job",
    "ready": "INSERT INTO chrono_ready (due_at, dispatched_at, run_id, job_id, tag, "
    "fence, revision, tenant, part, priority, attempt, slice, queue) SELECT now(), "
    "now(), id, id, 1, 1, 1, 1, part, 2, 1, 7, '' FROM chrono_job",
    "withdrawn": "INSERT INTO chrono_withdrawn (run_id, part) SELECT id, part "
    "FROM chrono_job",
    "slots": "INSERT INTO chrono_slot SELECT part, id, id FROM chrono_job",
}


@pytest.mark.parametrize("kind", MADE)
def test_a_look_finds_what_there_is_to_do(
    conn: Connection, clock: ManualClock, kind: str
) -> None:
    def look(since: Millis = clock.moment) -> dict[str, object]:
        return asdict(store.look_for_work(conn, after=0, since=since))

    make_job(conn, target={})
    before = look()
    assert not any(before.values())
    conn.execute(MADE[kind])
    field = kind if kind in before else "to_clear"
    assert look() == before | {field: True}
    assert look(clock.moment + HOUR) == before | {field: kind != "deaths"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the statements that are sent from now on."""
    names: list[str] = []
    for way in ("run", "change"):
        real = getattr(Statement, way)

        def note(self: Statement, *rest: Any, real: Any = real, **more: Any) -> Any:
            names.append(self.name)
            return real(self, *rest, **more)

        monkeypatch.setattr(Statement, way, note)
    return names


def test_a_step_with_nothing_to_do_is_one_statement(
    upkeep: Upkeep, clock: ManualClock, asked: list[str]
) -> None:
    upkeep.prepare()
    upkeep.step()
    asked.clear()
    clock.moment += 2_000
    upkeep.step()
    assert asked == ["look_for_work"]
    asked.clear()
    clock.moment += 3_000
    upkeep.step()
    assert asked == ["look_for_work", "watch_anything"]


def test_a_watch_that_took_long_rests_long(
    upkeep: Upkeep,
    clock: ManualClock,
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    upkeep.prepare()
    real = Watch.step

    def slow(self: Watch, *args: Any, **options: Any) -> int:
        clock.moment += 1_000
        return real(self, *args, **options)

    monkeypatch.setattr(Watch, "step", slow)
    upkeep.step()
    asked.clear()
    clock.moment += 18_999
    upkeep.step()
    assert "watch_anything" not in asked
    clock.moment += 1
    upkeep.step()
    assert "watch_anything" in asked


def test_jobs_are_watched_every_five_seconds_and_old_events_deleted(
    conn: Connection, upkeep: Upkeep, clock: ManualClock
) -> None:
    upkeep.prepare()
    job = make_job(conn, target={})
    conn.execute('UPDATE chrono_job_revision SET policy = \'{"late_after": "1m"}\'')

    def noted() -> int:
        make_ready(conn, job, due_at=clock.moment - HOUR)
        upkeep.step()
        [(count,)] = conn.execute("SELECT count(*) FROM chrono_job_event").fetchall()
        return int(count)

    assert noted() == 1
    clock.moment += 4_999
    assert noted() == 1
    clock.moment += 1
    assert noted() == 3
    conn.execute(
        "UPDATE chrono_job_event SET at = at - interval '91 days' WHERE id < 3"
    )
    clock.moment += HOUR
    conn.execute("TRUNCATE chrono_ready")
    upkeep.step()
    assert conn.execute("SELECT id FROM chrono_job_event").fetchall() == [(3,)]
