"""Statements from files: named in the server, tables checked, rows and counts."""

from collections.abc import Iterator
from pathlib import Path

import django.db
import psycopg
import pytest

from apps.runtime import sql
from apps.runtime.django_session import raw_connection
from apps.runtime.sessions import Connection, connect_hot
from apps.runtime.sql import Statement, UnknownTableName, load

ONE = Statement(name="one", text="/* t.one */ SELECT %(x)s::int + 1, 'a'")
PEEK = Statement(name="peek", text="/* t.peek */ SELECT count(*) FROM {table}")


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    """A hot session."""
    with connect_hot(dsn, name="test") as conn:
        yield conn


@pytest.fixture
def rooms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of rooms of a test's own."""
    monkeypatch.setattr(sql, "ROOMS", tmp_path)
    (tmp_path / "attic" / "sql").mkdir(parents=True)
    return tmp_path / "attic" / "sql"


def test_a_file_becomes_one_line_without_comments_under_its_name(rooms: Path) -> None:
    (rooms / "count_mice.sql").write_text(
        "-- Count mice: 100 % of them.\nSELECT count(*)  -- 5 % more\nFROM mice;\n"
    )
    statement = load("attic", "count_mice")
    assert statement.name == "count_mice"
    assert statement.text == "/* attic.count_mice */ SELECT count(*) FROM mice"


def test_a_file_is_read_once(rooms: Path) -> None:
    (rooms / "read_once.sql").write_text("SELECT 1")
    first = load("attic", "read_once")
    (rooms / "read_once.sql").write_text("SELECT 2")
    assert load("attic", "read_once") is first


def test_a_missing_file_is_an_error_at_once(rooms: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load("attic", "no_such")


def test_rows_come_back(conn: Connection) -> None:
    assert ONE.run(conn, {"x": 41}) == [(42, "a")]


def test_a_statement_without_rows_answers_none(conn: Connection) -> None:
    assert Statement(name="none", text="LISTEN chrono_test").run(conn) == []


def test_a_change_answers_how_many(conn: Connection) -> None:
    conn.execute("CREATE TEMP TABLE trace (id int)")
    fill = Statement(
        name="fill", text="INSERT INTO trace SELECT generate_series(1, %(n)s::int)"
    )
    assert fill.change(conn, {"n": 3}) == 3


@pytest.mark.usefixtures("database")
def test_django_s_own_session_is_served_too() -> None:
    # It binds on the client's side and can only be answered in text.
    assert ONE.run(raw_connection(), {"x": 1}) == [(2, "a")]


@pytest.mark.usefixtures("database")
def test_django_s_own_session_is_in_django_s_transaction() -> None:
    from django.db import transaction

    with transaction.atomic():
        raw_connection().execute("CREATE TABLE trace (id int)")
        transaction.set_rollback(True)
    with django.db.connections["default"].cursor() as cursor:
        cursor.execute("SELECT to_regclass('trace')")
        assert cursor.fetchone() == (None,)


def test_the_server_is_told_which_statement_runs(
    conn: Connection, second_connection: Connection
) -> None:
    load("runtime", "read_clock").run(conn)
    [(query,)] = second_connection.execute(
        "SELECT query FROM pg_stat_activity WHERE pid = %s", [conn.info.backend_pid]
    ).fetchall()
    assert query.startswith("/* runtime.read_clock */ SELECT")


def test_a_slot_takes_a_table_of_ours(conn: Connection) -> None:
    assert PEEK.named(table="chrono_ready_3").endswith("FROM chrono_ready_3")
    assert PEEK.run(conn, table="chrono_ready_3") == [(0,)]


@pytest.mark.parametrize(
    "name",
    [
        "pg_authid",
        "chrono_ready; DROP TABLE chrono_job",
        'chrono_ready"',
        "chrono_ready_0 r",
        "Chrono_ready",
        "chrono_ready\n",
        "chrono_ready_12345678901",
        "",
    ],
)
def test_a_slot_takes_nothing_else(name: str) -> None:
    with pytest.raises(UnknownTableName):
        PEEK.named(table=name)


def test_what_postgres_raises_comes_through(conn: Connection) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        PEEK.run(conn, table="chrono_absent")
