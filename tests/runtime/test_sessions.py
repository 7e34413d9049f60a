"""Sessions are set to what safety depends on, and refused where they cannot be."""

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from apps.runtime import sessions
from apps.runtime.sessions import (
    FIRE,
    HOT,
    LEADER,
    LISTENER,
    SINCE,
    TCP_ONLY,
    UPKEEP,
    VOICE,
    Connection,
    PooledSession,
    ServerTooOld,
    SettingRefused,
    connect,
    connect_fire,
    connect_hot,
    connect_leader,
    connect_listener,
    connect_upkeep,
    connect_voice,
)
from tests.support.relay import INVENTED_PID, pooled

Door = Callable[..., Connection]
KINDS = [
    (connect_hot, HOT),
    (connect_fire, FIRE),
    (connect_leader, LEADER),
    (connect_listener, LISTENER),
    (connect_upkeep, UPKEEP),
    (connect_voice, VOICE),
]
DOORS = [door for door, _ in KINDS]


def shown(conn: Connection, name: str) -> str:
    """Return a setting as the server has it, in the setting's own unit."""
    row = conn.execute("SELECT setting FROM pg_settings WHERE name = %s", [name])
    [(value,)] = row.fetchall()
    return str(value)


@pytest.mark.parametrize(("door", "settings"), KINDS)
def test_every_setting_is_in_force(
    dsn: str, door: Door, settings: dict[str, str]
) -> None:
    with door(dsn, name="test") as conn:
        on_socket = conn.info.host.startswith("/")
        for name, value in settings.items():
            if conn.info.server_version < SINCE.get(name, 0):
                continue
            if not (on_socket and name in TCP_ONLY):
                assert shown(conn, name) == value, name


def test_a_leader_s_session_ends_by_itself_within_its_bound(dsn: str) -> None:
    with connect_leader(dsn, name="test") as conn:
        assert conn.execute("SHOW idle_session_timeout").fetchone() == ("4s",)
        assert conn.execute("SHOW statement_timeout").fetchone() == ("2s",)
        if conn.info.server_version >= 170000:
            assert conn.execute("SHOW transaction_timeout").fetchone() == ("4s",)


def test_the_planner_of_a_hot_session_scans_no_whole_table(dsn: str) -> None:
    with connect_hot(dsn, name="test") as conn:
        for switch in ("enable_seqscan", "enable_hashjoin", "enable_sort", "jit"):
            assert conn.execute(f"SHOW {switch}").fetchone() == ("off",)
        assert conn.execute("SHOW plan_cache_mode").fetchone() == (
            "force_generic_plan",
        )


@pytest.mark.parametrize("door", DOORS)
def test_a_session_is_autocommit_in_utc_under_its_name(dsn: str, door: Door) -> None:
    with door(dsn, name="chrono test") as conn:
        assert conn.autocommit
        assert conn.execute("SHOW timezone").fetchone() == ("UTC",)
        assert conn.execute("SHOW application_name").fetchone() == ("chrono test",)


def test_a_hot_session_prepares_one_statement_for_all_sizes(dsn: str) -> None:
    with connect_hot(dsn, name="test") as conn:
        for value in (1, 2**15, 2**31, 2**62):
            conn.execute("SELECT %s + 0, %s::bigint[]", [value, [value]])
        [(count,)] = conn.execute(
            "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %s",
            ["SELECT $1 + 0%"],
        ).fetchall()
        assert count == 1


@pytest.mark.parametrize("door", DOORS)
def test_a_pooler_is_refused_and_left_without_a_session(dsn: str, door: Door) -> None:
    with (
        pooled(dsn) as url,
        pytest.raises(PooledSession, match="CHRONO_DIRECT_DATABASE_URL"),
    ):
        door(url, name="test")


def test_a_pooler_is_fine_where_no_direct_session_is_needed(dsn: str) -> None:
    with (
        pooled(dsn) as url,
        connect(url, name="test", settings={}, direct=False) as conn,
    ):
        assert conn.info.backend_pid == INVENTED_PID
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_a_setting_that_does_not_take_is_named(dsn: str) -> None:
    # It is read back in milliseconds, so this looks like another value than asked.
    with pytest.raises(SettingRefused, match="did not take: statement_timeout"):
        connect(dsn, name="test", settings={"statement_timeout": "1s"}, direct=True)


def test_a_system_without_a_timeout_of_tcp_is_no_refusal(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "UNKNOWN_TO_SYSTEM", {"lock_timeout": "5"})
    connect(dsn, name="test", settings={"lock_timeout": "5ms"}, direct=True).close()
    with pytest.raises(SettingRefused):
        connect(dsn, name="t", settings={"lock_timeout": "6ms"}, direct=True)


def test_a_setting_that_the_server_does_not_know_yet_is_left_out(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sessions.SINCE, "chrono_of_the_future", 990000)
    settings = {"chrono_of_the_future": "1"}
    with connect(dsn, name="test", settings=settings, direct=True) as conn:
        asked = conn.execute("SELECT current_setting('chrono_of_the_future', true)")
        assert asked.fetchone() == (None,)


def test_a_server_that_is_too_old_is_named(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "OLDEST_SERVER", 990000)
    with pytest.raises(ServerTooOld, match="15 or newer, not 1"):
        connect_hot(dsn, name="test")


def test_what_was_refused_is_not_left_connected(
    dsn: str, second_connection: Connection
) -> None:
    with pytest.raises(SettingRefused):
        connect(dsn, name="refused", settings={"statement_timeout": "1s"}, direct=True)
    # The server ends a session after its client has gone: wait for that, not for time.
    gone = threading.Event()
    for _ in range(1_000):
        [(left,)] = second_connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'refused'"
        ).fetchall()
        if not left:
            return
        gone.wait(0.005)
    raise AssertionError("the refused session is still there")


def test_the_server_ends_a_silent_leader_and_frees_its_locks(
    dsn: str, second_connection: Connection
) -> None:
    settings = {**LEADER, "idle_session_timeout": "500"}
    silent = connect(dsn, name="silent", settings=settings, direct=True)
    silent.execute("SELECT pg_advisory_lock(7)")
    # Waits until the server has ended the silent session.
    second_connection.execute("SET lock_timeout = '10s'")
    second_connection.execute("SELECT pg_advisory_lock(7)")
    with pytest.raises(psycopg.errors.IdleSessionTimeout):
        silent.execute("SELECT 1")
    assert silent.closed


def test_the_server_ends_a_leader_that_is_silent_inside_a_transaction(
    dsn: str, second_connection: Connection
) -> None:
    settings = {**LEADER, "idle_in_transaction_session_timeout": "500"}
    silent = connect(dsn, name="silent", settings=settings, direct=True)
    silent.execute("BEGIN")
    silent.execute("SELECT pg_advisory_xact_lock(7)")
    second_connection.execute("SET lock_timeout = '10s'")
    second_connection.execute("SELECT pg_advisory_lock(7)")
    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
        silent.execute("SELECT 1")


def test_nobody_there_is_an_operational_error(unused_port: int) -> None:
    with pytest.raises(psycopg.OperationalError):
        connect_hot(f"postgres://chrono@127.0.0.1:{unused_port}/none", name="test")


def test_a_server_that_gave_no_session_is_left_alone_for_a_moment(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = psycopg.conninfo.make_conninfo(dsn, dbname="chrono_of_nobody")
    asked = []

    def ask(url: str, **options: Any) -> Connection:
        if threading.get_ident() == mine:  # A thread that a test left asks, too.
            asked.append("missing" if url == missing else "there")
        return real(url, **options)

    real, mine = psycopg.connect, threading.get_ident()
    monkeypatch.setattr(sessions, "_refused", {})
    monkeypatch.setattr(psycopg, "connect", ask)
    now = time.monotonic()
    monkeypatch.setattr(sessions.time, "monotonic", lambda: now)
    for _ in range(3):
        with pytest.raises(psycopg.OperationalError, match="chrono_of_nobody"):
            connect_hot(missing, name="test")
    assert asked == ["missing"]
    connect_hot(dsn, name="test").close()
    assert asked[-1] == "there"
    now += sessions.REFUSED_FOR_S
    with pytest.raises(psycopg.OperationalError, match="chrono_of_nobody"):
        connect_hot(missing, name="test")
    assert asked.count("missing") == 2
